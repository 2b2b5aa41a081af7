"""Paired comparisons of settings on the same samples: tests, standard errors and sample sizes."""

from collections.abc import Sequence
from math import ceil, isfinite
from statistics import NormalDist

import numpy as np

from kvbench.metrics.bootstrap import Division, Interval, equal_pairs_needed

EXACT = 14  # units up to which every assignment of signs is tried
FLIPS = 9_999  # random assignments of signs for more units
_AT_ONCE = 500  # assignments in memory together
ALPHA, POWER = 0.05, 0.8  # of a two-sided test whose number of units is asked for
MOST_ERRORS = 1e9  # standard errors in the size to show: no run has as many units as that takes


def sign_flip(sums: np.ndarray) -> np.ndarray:
    """Two-sided p-values of the hypothesis that each unit's difference is as likely with the other sign.

    sums [units, comparisons]: each unit's contribution to the difference; nan for a unit that a comparison lacks. The
    test statistic is the sum over units. Exact for a comparison of up to EXACT units; otherwise from FLIPS random
    assignments and the observed one (Phipson and Smyth 2010), so never below 1 / (FLIPS + 1).
    """
    present = ~np.isnan(sums)
    values = np.where(present, sums, 0.0)
    reached = np.abs(values.sum(axis=0)) * (1 - 1e-9) - 1e-12  # equal sums in another order are equal
    few = present.sum(axis=0) <= EXACT
    p_values = np.empty(sums.shape[1])
    p_values[~few] = _of_random_signs(values[:, ~few], reached[~few])
    patterns, pattern_of = np.unique(present[:, few], axis=1, return_inverse=True)
    for number, units in enumerate(patterns.T):  # comparisons over the same units are tried together
        alike = np.flatnonzero(few)[pattern_of.ravel() == number]
        p_values[alike] = _of_all_signs(values[np.ix_(units, alike)], reached[alike])
    return p_values


def _of_all_signs(sums: np.ndarray, reached: np.ndarray) -> np.ndarray:
    units = len(sums)
    signs = 1.0 - 2 * (np.arange(2**units)[:, None] >> np.arange(units) & 1)
    return np.asarray((np.abs(signs @ sums) >= reached).mean(axis=0))


def _of_random_signs(sums: np.ndarray, reached: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    extreme = np.ones(sums.shape[1])  # assignments with a sum at least as large, the observed one among them
    for start in range(0, FLIPS, _AT_ONCE) if len(reached) else ():
        signs = 2.0 * rng.integers(2, size=(min(_AT_ONCE, FLIPS - start), len(sums))) - 1
        extreme += (np.abs(signs @ sums) >= reached).sum(axis=0)
    return extreme / (FLIPS + 1)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's (1979) adjusted p-values, which control the family-wise error rate; nan is no test."""
    values = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(values), np.nan)
    order = [i for i in np.argsort(values, kind="stable") if not np.isnan(values[i])]
    largest = 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * values[i]))
        adjusted[i] = largest
    return adjusted


def standard_error(differences: np.ndarray, strata: np.ndarray, units: np.ndarray) -> float:
    """The standard error of the mean over strata of the mean difference, for samples that are drawn in units.

    strata and units label each difference with an integer; a unit may have differences in several strata. nan where a
    stratum has fewer than two units.
    """
    labels = np.unique(strata)
    _, numbers = np.unique(units, return_inverse=True)
    residuals = np.zeros(numbers.max() + 1)  # of each unit, over all strata
    for label in labels:
        mask = strata == label
        sums, counts = (np.bincount(numbers[mask], weights, len(residuals)) for weights in (differences[mask], None))
        present = (counts > 0).sum()
        if present < 2:
            return float("nan")
        total = counts.sum()
        residuals += np.sqrt(present / (present - 1)) * (sums - counts * sums.sum() / total) / total
    return float(np.sqrt((residuals**2).sum())) / len(labels)


def units_needed(error: float, units: int, size: float) -> int | None:
    """The number of units that show a difference of `size` with probability POWER at level ALPHA, two-sided.

    By the normal approximation, from the standard error `error` of the difference over `units` units. None where that
    is unknown or 0, and for more units than anybody has.
    """
    if not (error > 0 and size):
        return None
    quantiles = NormalDist().inv_cdf(1 - ALPHA / 2) + NormalDist().inv_cdf(POWER)
    errors = quantiles * error / abs(size)
    return max(2, ceil(units * errors**2)) if errors < MOST_ERRORS else None


def units_for_margin(error: float, units: int, margin: float, bounds: Interval, divided: Division) -> int | None:
    """The number of units that decide about a margin: `units_needed`, or more if equal pairs alone need more.

    `bounds` are of a score; where one is infinite, equal pairs need no number. Further units are `divided` between
    tasks as these are: of the task with the fewest, as many are needed as of one task.
    """
    span = bounds.high - bounds.low
    of_task = equal_pairs_needed(margin / span, 1 - ALPHA, divided.shares) if isfinite(span) else None
    least = None if of_task is None else ceil(units * of_task / divided.fewest - 1e-9)
    numbers = [number for number in (units_needed(error, units, margin), least) if number is not None]
    return max(numbers, default=None)


def verdict(low: float, high: float, margin: float) -> str:
    """Whether a setting is at most `margin` below its baseline, by the interval of the difference.

    within: the whole interval is at or above -margin. broken: all of it is below. undecided: -margin lies inside, or
    there is no interval.
    """
    if low >= -margin:
        return "within"
    return "broken" if high < -margin else "undecided"
