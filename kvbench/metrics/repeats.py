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


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Ours over theirs, whose repeats were made independently; None where there is nothing to divide.

    The difference of mean logarithms is twice the mean over two strata, one of them with the other sign.
    """
    if not ours or not theirs or min(*ours, *theirs) <= 0:
        return None
    a, b = [log(value) for value in ours], [-log(value) for value in theirs]
    low, high = clustered([a, b], [range(len(a)), range(len(b))], None)
    return Ratio(exp(fmean(a) + fmean(b)), exp(2 * low), exp(2 * high))
