"""Intervals of means over units that were drawn independently, by the Bayesian bootstrap (Rubin 1981).

Each of RESAMPLES draws weights the units of a stratum by a Dirichlet distribution. Two additions make the intervals
hold for ten units as for a thousand (`python -m scripts.benchmarks.measure_interval_coverage`):

- Ten needles that were all found do not show that every needle is found. Each bound of a score counts as half a unit
  more, times the share of samples whose scores lie at a bound, or all of it where units are all equal. For scores that
  are 0 or 1 this is Jeffreys' interval of a proportion.
- Deviations are stretched by sqrt((n + 1) / (n - 1)) for n units, so that their variance is the unbiased one of a mean;
  and, as far as scores do not lie at a bound, as Student's t is wider than the normal distribution.
"""

from collections.abc import Hashable, Sequence
from math import nan, sqrt
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
EQUAL = 1e-9  # values that differ by less are equal


class Interval(NamedTuple):
    low: float
    high: float


OF_SCORES = Interval(0.0, 1.0)
OF_DIFFERENCES = Interval(-1.0, 1.0)
Bounds = Interval | None  # of what is averaged; None: it has none


def interval(values: Sequence[float], bounds: Bounds = OF_SCORES, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The interval of the mean of values that were drawn one by one; (nan, nan) for fewer than two.

    Values outside of `bounds` have none. The same values give the same interval.
    """
    return clustered([values], [range(len(values))], bounds, confidence, seed)


def clustered(
    strata: Sequence[Sequence[float]],
    clusters: Sequence[Sequence[Hashable]],
    bounds: Bounds = OF_SCORES,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The interval of the mean over strata of their means; values with one label in `clusters` were drawn together.

    clusters[i] labels the values of strata[i]. (nan, nan) where a stratum has fewer than two clusters.
    """
    of = [np.asarray(values, dtype=float) for values in strata]
    return _interval(of, [_at(values, bounds) for values in of], clusters, bounds, confidence, seed)


def paired_interval(
    a: Sequence[float],
    b: Sequence[float],
    strata: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable] | None = None,
    bounds: Bounds = OF_SCORES,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The interval of the mean of a - b; a[i] and b[i] are of one sample.

    With `strata`, a label for each sample (its task), it is that of the mean over strata of their means; with
    `clusters`, another one (its context), samples with the same one were drawn together. (nan, nan) where a stratum has
    fewer than two samples, or clusters. `bounds` are those of a and b.
    """
    if len(a) != len(b) or any(labels is not None and len(labels) != len(a) for labels in (strata, clusters)):
        raise ValueError(f"{len(a)} and {len(b)} values are not pairs" if len(a) != len(b) else "a label for each pair")
    ours, theirs = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    at = _at(ours, bounds) & _at(theirs, bounds)
    labels = list(range(len(a))) if clusters is None else clusters
    members: dict[Hashable, list[int]] = {}
    for i in range(len(a)):
        members.setdefault(None if strata is None else strata[i], []).append(i)
    every = list(members.values())
    return _interval(
        [(ours - theirs)[these] for these in every],
        [at[these] for these in every],
        [[labels[i] for i in these] for these in every],
        None if bounds is None else Interval(bounds.low - bounds.high, bounds.high - bounds.low),
        confidence,
        seed,
    )


def _at(values: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Which values lie at one of the bounds."""
    return np.zeros(len(values), dtype=bool) if bounds is None else np.isin(values, bounds)


def _interval(
    strata: Sequence[np.ndarray],
    at: Sequence[np.ndarray],
    clusters: Sequence[Sequence[Hashable]],
    bounds: Bounds,
    confidence: float,
    seed: int,
) -> Interval:
    if not len(strata) or min(len(set(labels)) for labels in clusters) < 2:
        return Interval(nan, nan)
    if bounds and any(values.min() < bounds[0] or values.max() > bounds[1] for values in strata):
        bounds = None
    rng = np.random.default_rng(seed)
    drawn = sum(_means(rng, *of, bounds) for of in zip(strata, at, clusters, strict=True)) / len(strata)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    if bounds is None:
        return Interval(float(low), float(high))
    return Interval(max(float(low), bounds[0]), min(float(high), bounds[1]))


def _means(
    rng: np.random.Generator, values: np.ndarray, at: np.ndarray, labels: Sequence[Hashable], bounds: Bounds
) -> np.ndarray:
    """RESAMPLES means of one stratum's values, weighted by units."""
    _, members = np.unique([str(label) for label in labels], return_inverse=True)
    sums, counts = np.bincount(members, weights=values), np.bincount(members)
    weights = rng.standard_exponential((RESAMPLES, len(counts)))
    totals, sizes = weights @ sums, weights @ counts
    equal = np.ptp(sums / counts) < EQUAL
    if equal and bounds is None:
        return np.full(RESAMPLES, values.mean())
    bounded = 0.0 if bounds is None else 1.0 if equal else at.mean()
    units = len(counts)
    for bound in bounds or ():
        more = bounded * rng.standard_gamma(0.5, RESAMPLES) * counts.mean()
        totals += more * bound
        sizes += more
    means = totals / sizes
    student = np.sqrt((units - 1) / rng.chisquare(units - 1, RESAMPLES)) ** (1 - bounded)
    moved: np.ndarray = means.mean() + (means - means.mean()) * student * sqrt((units + 1) / (units - 1))
    return moved
