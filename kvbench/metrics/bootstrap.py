"""Intervals of means over units that were drawn independently, by the Bayesian bootstrap (Rubin 1981).

Each of RESAMPLES draws weights the units of a stratum by independent gamma variables. Two rules make the intervals of
bounded scores hold for ten units as for a thousand (`python -m scripts.benchmarks.measure_interval_coverage`):

- Ten needles that were all found do not prove that every needle is found, nor do a hundred equal pairs prove that all
  pairs are equal. The lower end therefore counts UNSEEN further units at the lower bound, and the upper end as many at
  the upper bound (Learned-Miller and Thomas 2019, https://arxiv.org/abs/1905.06208, count one unit). Strata share them.
- The weights of n units have the shape (n - 2) / n each, so that the variance of a mean is unbiased.

Units of unequal size tell as little as fewer ones of one size: of 100 questions, 50 of which are about one text, no
number of texts behind the others tells more than four texts with 25 each. In both rules n is the number of equally
large units that tell as much, and an unseen unit is as large as those in which most values lie.

A unit may have values in several strata, such as a text about which each task asks: it has one weight in all of them,
of the shape that the smallest of these strata gives. Strata that share units share the unseen ones, too.

Weights do not depend on values. So no end falls when a value rises, and no end leaves the bounds.

Values that are unbounded on a side, such as divergences, have no unseen units: `kvbench.metrics.unbounded` has their
intervals. Where they do not vary there is none.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from math import inf, isfinite, nan
from typing import NamedTuple

import numpy as np

from kvbench.metrics.unbounded import unbounded_ends
from kvbench.metrics.units import Members, Units, groups_of, members_of, sizes_of, units_of

RESAMPLES = 2000
UNSEEN = 2 / 3  # units; with half a unit (Jeffreys' interval) 9 % of the intervals of yes-no scores miss the truth
EQUAL = 1e-9  # values that differ by less are equal
_FINE = 25  # draws for each quantile of the weight of unseen units


class Interval(NamedTuple):
    low: float
    high: float


OF_SCORES = Interval(0.0, 1.0)
OF_DIFFERENCES = Interval(-1.0, 1.0)
UNBOUNDED = Interval(-inf, inf)
Bounds = Interval | None  # of the values; None: unbounded
NOT_KNOWN = Interval(nan, nan)


def interval(values: Sequence[float], bounds: Bounds = OF_SCORES, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The interval of the mean of values that were drawn one by one; (nan, nan) for fewer than two.

    Values outside `bounds` count as unbounded. The same values give the same interval.
    """
    return clustered([values], [range(len(values))], bounds, confidence, seed)


def clustered(
    strata: Sequence[Sequence[float] | np.ndarray],
    clusters: Sequence[Sequence[Hashable]],
    bounds: Bounds = OF_SCORES,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The interval of the mean over strata of their means; values with one label in `clusters` were drawn together, in
    whichever strata they are.

    clusters[i] labels the values of strata[i]. (nan, nan) where a stratum has fewer than two clusters, or where values
    without two finite bounds do not vary. Two equal bounds are the value, which is known by definition.
    """
    if not len(strata) or min(len(set(labels)) for labels in clusters) < 2:
        return NOT_KNOWN
    arrays = [np.asarray(values, dtype=float) for values in strata]
    units = [units_of(values, labels) for values, labels in zip(arrays, clusters, strict=True)]
    values = np.concatenate(arrays)
    if bounds is None or values.min() < bounds.low - EQUAL or values.max() > bounds.high + EQUAL:
        bounds = UNBOUNDED
    if bounds.low == bounds.high:
        return bounds
    tail = (1 - confidence) / 2
    if isfinite(bounds.low) and isfinite(bounds.high):
        low, high = (_means(units, bound, seed) for bound in bounds)
        ends = np.array([np.quantile(low, tail), np.quantile(high, 1 - tail)])
    elif all(np.ptp(stratum.sums / stratum.counts) < EQUAL for stratum in units):
        return NOT_KNOWN
    else:
        ends = unbounded_ends(units, tail, bounds.low)
    return Interval(*np.clip(ends, *bounds).tolist())


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

    strata    a label for each sample (its task): the mean is the mean over strata of their means.
    clusters  a label for each sample (its context): samples with the same label were drawn together, also those of
              several strata.
    bounds    of a, and of b unless `bounds_of_b` are given.

    (nan, nan) where a stratum has fewer than two samples, or fewer than two clusters.
    """
    if len(a) != len(b) or any(labels is not None and len(labels) != len(a) for labels in (strata, clusters)):
        raise ValueError(f"{len(a)} and {len(b)} values are not pairs" if len(a) != len(b) else "a label for each pair")
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    labels = list(range(len(a))) if clusters is None else clusters
    members: dict[Hashable, list[int]] = {}
    for i in range(len(a)):
        members.setdefault(None if strata is None else strata[i], []).append(i)
    bounds_of_a = bounds or UNBOUNDED
    bounds_of_b = bounds_of_b or bounds_of_a
    return clustered(
        [differences[indices] for indices in members.values()],
        [[labels[i] for i in indices] for indices in members.values()],
        Interval(bounds_of_a.low - bounds_of_b.high, bounds_of_a.high - bounds_of_b.low),
        confidence,
        seed,
    )


class Division(NamedTuple):
    """How units are divided between the strata of a mean."""

    fewest: float  # equally large units that tell as much as those of the stratum with the fewest
    shares: tuple[float, ...]  # of the mean, that strata without units in common have


WHOLE = (1.0,)  # the shares of a single stratum


def division(strata: Sequence[Hashable], clusters: Sequence[Hashable]) -> Division:
    """The division of samples with these labels, of their stratum and of what they were drawn with."""
    labels: dict[Hashable, list[Hashable]] = {}
    for stratum, cluster in zip(strata, clusters, strict=True):
        labels.setdefault(stratum, []).append(cluster)
    units = [units_of(np.zeros(len(of)), of) for of in labels.values()]
    together = Counter(groups_of(members_of(units)))
    return Division(min(stratum.alike for stratum in units), tuple(count / len(units) for count in together.values()))


@cache
def equal_pairs_needed(margin: float, confidence: float = 0.95, shares: tuple[float, ...] = WHOLE) -> int | None:
    """The number of equal pairs of scores in [0, 1] that show a loss of at most `margin`; None for a margin of 0.

    Of several strata each takes so many; `shares` are as in a `Division`.
    """
    if margin <= 0:
        return None
    quantile, rng = 1 - (1 - confidence) / 2, np.random.default_rng(0)
    unseen = [_unseen(rng, UNSEEN / len(shares)) for _ in shares]

    def shown(pairs: int) -> bool:
        rng = np.random.default_rng(1)
        seen = [rng.standard_gamma(_total(pairs), RESAMPLES) for _ in shares]
        losses = [share * more / (more + all_seen) for share, more, all_seen in zip(shares, unseen, seen, strict=True)]
        return bool(np.quantile(sum(losses), quantile) <= margin)

    few, enough = 1, 2
    while not shown(enough):
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if shown(middle) else (middle, enough)
    return enough


def _means(strata: Sequence[Units], bound: float, seed: int) -> np.ndarray:
    """RESAMPLES means over strata of the weighted means of their units, with unseen units at `bound`."""
    weights = _weights(members_of(strata), sizes_of(strata), seed)
    means = np.zeros(RESAMPLES)
    for stratum, seen, unseen in zip(strata, *weights, strict=True):
        more = unseen * stratum.usual
        means += (seen @ stratum.sums + more * bound) / (seen @ stratum.counts + more)
    return means / len(strata)


class _Weights(NamedTuple):
    """For each stratum, the weights of its units [RESAMPLES, units] and of its unseen units [RESAMPLES]."""

    seen: list[np.ndarray]
    unseen: list[np.ndarray]


@lru_cache(maxsize=2)
def _weights(members: Members, sizes: tuple[float, ...], seed: int) -> _Weights:
    """The weights of strata with these units, of these effective numbers.

    A unit weighs most in the smallest stratum, and the unseen units may lie there: in every stratum they have the
    effect that they would have in the smallest one.
    """
    rng = np.random.default_rng(seed)
    groups = groups_of(members)
    unseen = {group: _unseen(rng, UNSEEN / len(set(groups))) for group in dict.fromkeys(groups)}
    shapes = [_total(n) / n for n in sizes]
    smallest: dict[int, float] = {}
    for units, shape in zip(members, shapes, strict=True):
        smallest |= {unit: min(shape, smallest.get(unit, shape)) for unit in units}
    seen = _drawn(members, smallest, rng)
    for i, shape in enumerate(shapes):
        scale = np.array([shape / smallest[unit] for unit in members[i]])
        if (scale != 1).any():  # the weights of a stratum add up to what its unseen units are measured by
            seen[i] = seen[i] * scale
    return _Weights(seen, [unseen[group] * (n / min(sizes)) for group, n in zip(groups, sizes, strict=True)])


def _drawn(members: Members, shapes: Mapping[int, float], rng: np.random.Generator) -> list[np.ndarray]:
    """The weights of each stratum's units [RESAMPLES, units], gamma variables of the units' shapes: a unit has the same
    in every stratum."""
    known: dict[int, np.ndarray] = {}
    drawn = []
    for units in members:
        new = [unit for unit in units if unit not in known]
        weights = rng.standard_gamma([shapes[unit] for unit in new], (RESAMPLES, len(new)))
        known.update(zip(new, weights.T, strict=True))
        drawn.append(weights if len(new) == len(units) else np.stack([known[unit] for unit in units], axis=1))
    return drawn


def _total(units: float) -> float:
    """The weight of all units of a stratum."""
    return max(units - 2.0, 1.0)


def _unseen(rng: np.random.Generator, shape: float) -> np.ndarray:
    """RESAMPLES weights of unseen units: the quantiles of a gamma distribution, in random order."""
    fine = np.sort(rng.standard_gamma(shape, RESAMPLES * _FINE))
    return rng.permutation(fine[_FINE // 2 :: _FINE])
