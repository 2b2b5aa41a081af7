"""Intervals of means over units that were drawn independently, by the Bayesian bootstrap (Rubin 1981).

Each of RESAMPLES draws weights the units of a stratum by independent gamma variables. Two rules make the intervals of
bounded scores hold for ten units as for a thousand (`python -m scripts.benchmarks.measure_interval_coverage`):

- Ten needles that were all found do not show that every needle is found, and a hundred equal pairs not that every pair
  is. The lower end counts UNSEEN units more that lie at the lower bound, the upper end as many at the upper bound
  (Learned-Miller and Thomas 2019, https://arxiv.org/abs/1905.06208, count one whole unit). Strata share them.
- The weights of n units have the shape (n - 2) / n each, so that the variance of a mean is the unbiased one.

Weights do not depend on values. So no end falls where a value rises, and none leaves the bounds.

What has a bound on one side at most, as a divergence, has no such unit. Deviations are then stretched as Student's t is
wider than the normal distribution; where values do not vary there is no interval.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import inf, isfinite, nan, sqrt
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
UNSEEN = 2 / 3  # units; half a unit (Jeffreys' interval) leaves 9 % of the intervals of found or not beside the truth
EQUAL = 1e-9  # values that differ by less are equal
_FINE = 25  # draws for each quantile of the weight of unseen units


class Interval(NamedTuple):
    low: float
    high: float


OF_SCORES = Interval(0.0, 1.0)
OF_DIFFERENCES = Interval(-1.0, 1.0)
UNBOUNDED = Interval(-inf, inf)
Bounds = Interval | None  # of what is averaged; None: it has none
NOT_KNOWN = Interval(nan, nan)


def interval(values: Sequence[float], bounds: Bounds = OF_SCORES, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The interval of the mean of values that were drawn one by one; (nan, nan) for fewer than two.

    Values outside of `bounds` have none. The same values give the same interval.
    """
    return clustered([values], [range(len(values))], bounds, confidence, seed)


def clustered(
    strata: Sequence[Sequence[float] | np.ndarray],
    clusters: Sequence[Sequence[Hashable]],
    bounds: Bounds = OF_SCORES,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The interval of the mean over strata of their means; values with one label in `clusters` were drawn together.

    clusters[i] labels the values of strata[i]. (nan, nan) where a stratum has fewer than two clusters, or where values
    without two finite bounds do not vary. Two equal bounds are the value, which is known by definition.
    """
    if not len(strata) or min(len(set(labels)) for labels in clusters) < 2:
        return NOT_KNOWN
    found = [_units(np.asarray(values, dtype=float), labels) for values, labels in zip(strata, clusters, strict=True)]
    every = np.concatenate([np.asarray(values, dtype=float) for values in strata])
    if bounds is None or every.min() < bounds.low - EQUAL or every.max() > bounds.high + EQUAL:
        bounds = UNBOUNDED
    if bounds.low == bounds.high:
        return bounds
    tail = (1 - confidence) / 2
    if isfinite(bounds.low) and isfinite(bounds.high):
        low, high = (_means(found, bound, seed) for bound in bounds)
    elif all(np.ptp(unit.sums / unit.counts) < EQUAL for unit in found):
        return NOT_KNOWN
    else:
        low = high = _unbounded_means(found, seed)
    ends = np.clip([np.quantile(low, tail), np.quantile(high, 1 - tail)], *bounds)
    return Interval(*ends.tolist())


def paired_interval(
    a: Sequence[float],
    b: Sequence[float],
    strata: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable] | None = None,
    bounds: Bounds = OF_SCORES,
    confidence: float = 0.95,
    seed: int = 0,
    bounds_of_b: Bounds = None,
) -> Interval:
    """The interval of the mean of a - b; a[i] and b[i] are of one sample.

    With `strata`, a label for each sample (its task), it is that of the mean over strata of their means; with
    `clusters`, another one (its context), samples with the same one were drawn together. (nan, nan) where a stratum has
    fewer than two samples, or clusters. `bounds` are those of a, and of b where it has no others.
    """
    if len(a) != len(b) or any(labels is not None and len(labels) != len(a) for labels in (strata, clusters)):
        raise ValueError(f"{len(a)} and {len(b)} values are not pairs" if len(a) != len(b) else "a label for each pair")
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    labels = list(range(len(a))) if clusters is None else clusters
    members: dict[Hashable, list[int]] = {}
    for i in range(len(a)):
        members.setdefault(None if strata is None else strata[i], []).append(i)
    of_a = bounds or UNBOUNDED
    of_b = bounds_of_b or of_a
    return clustered(
        [differences[these] for these in members.values()],
        [[labels[i] for i in these] for these in members.values()],
        Interval(of_a.low - of_b.high, of_a.high - of_b.low),
        confidence,
        seed,
    )


def equal_pairs_needed(margin: float, confidence: float = 0.95) -> int | None:
    """How many equal pairs of scores in [0, 1] show that no more than `margin` is lost; None for a margin of 0."""
    if margin <= 0:
        return None
    quantile = 1 - (1 - confidence) / 2

    def shown(pairs: int) -> bool:
        unseen = _unseen(np.random.default_rng(0), UNSEEN)
        seen = np.random.default_rng(1).standard_gamma(_total(pairs), RESAMPLES)
        return bool(np.quantile(unseen / (unseen + seen), quantile) <= margin)

    few, enough = 1, 2
    while not shown(enough):
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if shown(middle) else (middle, enough)
    return enough


class _Units(NamedTuple):
    """The units of a stratum: the sum of the values of each, and their number."""

    sums: np.ndarray
    counts: np.ndarray


def _units(values: np.ndarray, labels: Sequence[Hashable]) -> _Units:
    _, members = np.unique([str(label) for label in labels], return_inverse=True)
    return _Units(np.bincount(members, weights=values), np.bincount(members))


def _means(strata: Sequence[_Units], bound: float, seed: int) -> np.ndarray:
    """RESAMPLES means over strata of the weighted means of their units, with unseen ones at `bound`."""
    weights = _weights(tuple(len(stratum.counts) for stratum in strata), seed)
    means = np.zeros(RESAMPLES)
    for of, weight, missing in zip(strata, *weights, strict=True):
        more = missing * of.counts.mean()
        means += (weight @ of.sums + more * bound) / (weight @ of.counts + more)
    return means / len(strata)


class _Weights(NamedTuple):
    """Of strata: the weights [RESAMPLES, units] of what was seen of each, and those [RESAMPLES] of what was not."""

    seen: list[np.ndarray]
    unseen: list[np.ndarray]


@lru_cache(maxsize=2)
def _weights(units: tuple[int, ...], seed: int) -> _Weights:
    """The weights of strata of so many units.

    A unit weighs the most in the stratum with the fewest of them, and what was not seen may lie there: in every stratum
    it has the effect that it would have in that one.
    """
    rng = np.random.default_rng(seed)
    unseen = [_unseen(rng, UNSEEN / len(units)) * (n / min(units)) for n in units]
    return _Weights([rng.standard_gamma(_total(n) / n, (RESAMPLES, n)) for n in units], unseen)


def _total(units: int) -> float:
    """What all units of a stratum weigh."""
    return max(units - 2.0, 1.0)


def _unseen(rng: np.random.Generator, shape: float) -> np.ndarray:
    """RESAMPLES weights of unseen units in a random order: the quantiles of a gamma distribution."""
    fine = np.sort(rng.standard_gamma(shape, RESAMPLES * _FINE))
    return rng.permutation(fine[_FINE // 2 :: _FINE])


def _unbounded_means(strata: Sequence[_Units], seed: int) -> np.ndarray:
    """RESAMPLES means over strata of the weighted means of their units, whose values have no bounds."""
    rng = np.random.default_rng(seed)
    total = np.zeros(RESAMPLES)
    for sums, counts in strata:
        units = len(counts)
        weights = rng.standard_exponential((RESAMPLES, units))
        means = (weights @ sums) / (weights @ counts)
        student = np.sqrt((units - 1) / rng.chisquare(units - 1, RESAMPLES))
        total += means.mean() + (means - means.mean()) * student * sqrt((units + 1) / (units - 1))
    return total / len(strata)
