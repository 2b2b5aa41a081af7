"""Ratios of positive quantities that were measured several times, such as latencies of two servers."""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean
from typing import NamedTuple

from kvbench.metrics.bootstrap import clustered


class Ratio(NamedTuple):
    """A ratio of geometric means, and its 95 % interval; nan without at least two repeats of both."""

    value: float
    low: float
    high: float


def ratio(values: Sequence[float], baseline: Sequence[float]) -> Ratio | None:
    """The ratio of `values` to the `baseline`, repeated independently; None for no values or values up to 0.

    The difference of mean logarithms is twice the mean over two strata, one of them with the other sign.
    """
    if not values or not baseline or min(*values, *baseline) <= 0:
        return None
    a, b = [log(value) for value in values], [-log(value) for value in baseline]
    low, high = clustered([a, b], [range(len(a)), range(len(a), len(a) + len(b))], None)
    return Ratio(exp(fmean(a) + fmean(b)), exp(2 * low), exp(2 * high))
