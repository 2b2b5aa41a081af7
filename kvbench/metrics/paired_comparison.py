"""Paired comparisons of settings: over the same samples, how far apart two of them are and how sure that is."""

from collections.abc import Sequence
from math import ceil, isfinite
from statistics import NormalDist

import numpy as np

from kvbench.metrics.bootstrap import Interval, equal_pairs_needed

EXACT = 14  # units up to which every assignment of signs is tried
FLIPS = 9_999  # random assignments of signs for more units
_AT_ONCE = 500  # assignments in memory together
POWER = 0.8


def sign_flip(sums: np.ndarray, seed: int = 0) -> np.ndarray:
    """Two-sided p-values of the hypothesis that each unit's difference is as likely with the other sign.

    sums [units, comparisons]: what each unit adds to the difference; 0 for a unit that a comparison lacks. The test
    statistic is the sum over units. Exact up to EXACT units; beyond, from FLIPS random assignments and the observed
    one (Phipson and Smyth 2010), so never below 1 / (FLIPS + 1).
    """
    units = len(sums)
    reached = np.abs(sums.sum(axis=0)) * (1 - 1e-9) - 1e-12  # equal sums in another order are equal
    if units <= EXACT:
        signs = 1.0 - 2 * (np.arange(2**units)[:, None] >> np.arange(units) & 1)
        exact: np.ndarray = (np.abs(signs @ sums) >= reached).mean(axis=0)
        return exact
    rng = np.random.default_rng(seed)
    found: np.ndarray = np.ones(sums.shape[1])
    for start in range(0, FLIPS, _AT_ONCE):
        signs = 2.0 * rng.integers(2, size=(min(_AT_ONCE, FLIPS - start), units)) - 1
        found += (np.abs(signs @ sums) >= reached).sum(axis=0)
    share: np.ndarray = found / (FLIPS + 1)
    return share


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's (1979) adjusted p-values, which together keep the chance of any false finding; nan counts as no test."""
    found = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(found), np.nan)
    order = [i for i in np.argsort(found, kind="stable") if not np.isnan(found[i])]
    largest = 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * found[i]))
        adjusted[i] = largest
    return adjusted


def standard_error(differences: np.ndarray, strata: np.ndarray, units: np.ndarray) -> float:
    """Of the mean over strata of the mean difference, where samples with one label in `units` come together.

    strata and units label each difference with an integer. nan where a stratum has fewer than two units.
    """
    labels = np.unique(strata)
    variance = 0.0
    for label in labels:
        of = strata == label
        _, members = np.unique(units[of], return_inverse=True)
        sums, counts = np.bincount(members, weights=differences[of]), np.bincount(members)
        if len(sums) < 2:
            return float("nan")
        residuals = sums - counts * sums.sum() / counts.sum()
        variance += len(sums) / (len(sums) - 1) * (residuals**2).sum() / counts.sum() ** 2
    return float(np.sqrt(variance)) / len(labels)


def units_needed(error: float, units: int, size: float, alpha: float = 0.05) -> int | None:
    """How many units show a difference of `size` with probability POWER at level `alpha`, two-sided.

    By the normal approximation, for units that vary as the `units` do whose difference has the standard error
    `error`. None where that is unknown or 0.
    """
    if not (error > 0 and size):
        return None
    quantiles = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(POWER)
    return max(2, ceil(units * (quantiles * error / abs(size)) ** 2))


def units_for_margin(error: float, units: int, margin: float, bounds: Interval, alpha: float = 0.05) -> int | None:
    """How many units decide about a margin: `units_needed`, and no fewer than show it where all pairs are equal.

    `bounds` are those of a score; without two there is no such number.
    """
    span = bounds.high - bounds.low
    least = equal_pairs_needed(margin / span, 1 - alpha) if isfinite(span) else None
    known = [one for one in (units_needed(error, units, margin, alpha), least) if one is not None]
    return max(known, default=None)


def verdict(low: float, high: float, margin: float) -> str:
    """Whether a setting is at most `margin` below its baseline, by the interval of the difference.

    within: the whole interval is at or above -margin. broken: all of it is below. undecided: -margin lies inside, or
    there is no interval.
    """
    if low >= -margin:
        return "within"
    return "broken" if high < -margin else "undecided"
