"""Intervals of means of values without two bounds, such as divergences, which are often far from symmetric.

Student's interval lies too low where a few texts have most of a divergence: with ten units, one or two in ten of such
intervals end below the truth (`python -m scripts.benchmarks.measure_interval_coverage`). Hall's transformation of its
quantiles moves both ends by the skewness of the mean (1992, On the removal of skewness by transformation, JRSS B 54). A
few values show less skewness than they were drawn with: those with a lower bound are taken to be at least as skewed as
a gamma distribution of their mean and variance.
"""

from collections.abc import Sequence
from functools import cache
from math import cbrt, isfinite, sqrt

import numpy as np

from kvbench.metrics.units import Units, groups_of, members_of, sizes_of

_STEPS = 20_000  # of the angles over which Student's density is added up


def unbounded_ends(strata: Sequence[Units], tail: float, low: float) -> np.ndarray:
    """The lower and the upper end [2] of the interval of the mean over strata of their means, which miss the truth by
    `tail` each.

    `low` is the values' lower bound, -inf without one.
    """
    mean = 0.0
    members, sizes = members_of(strata), sizes_of(strata)
    deviations: dict[int, dict[int, float]] = {}  # group -> unit -> what it adds to the mean
    fewest: dict[int, float] = {}
    for units, group, size, (_, sums, counts) in zip(members, groups_of(members), sizes, strata, strict=True):
        of_stratum = sums.sum() / counts.sum()
        mean += of_stratum / len(strata)
        added = (sums - of_stratum * counts) / counts.sum() / len(strata)
        of_group = deviations.setdefault(group, {})
        for unit, deviation in zip(units, added.tolist(), strict=True):
            of_group[unit] = of_group.get(unit, 0.0) + deviation
        fewest[group] = min(size, fewest.get(group, size))
    scale = max(abs(deviation) for of_group in deviations.values() for deviation in of_group.values())
    if not scale:
        return np.array([mean, mean])
    variances, third = [], 0.0
    for group, of_group in deviations.items():
        n, values = fewest[group], np.array([*of_group.values()]) / scale  # so that no power overflows
        variances.append(float((values**2).sum()) * n / (n - 1))
        third += float((values**3).sum()) * (n**2 / ((n - 1) * (n - 2)) if n >= 3 else 1.0)
    spread = sqrt(sum(variances))
    # Welch and Satterthwaite's degrees of freedom
    freedom = spread**4 / sum(v**2 / (n - 1) for v, n in zip(variances, fewest.values(), strict=True))
    error, skewness = scale * spread, third / spread**3
    if isfinite(low) and mean > low:
        skewness = max(skewness, 2 * error / (mean - low))
    most = student(freedom, tail)
    return np.array([mean - error * _untransformed(quantile, skewness) for quantile in (most, -most)])


def _untransformed(quantile: float, skewness: float) -> float:
    """The studentised mean of this skewness that Hall's transformation turns into `quantile`."""
    sixth = skewness / 6
    if abs(sixth) < 1e-9:
        return quantile
    return (cbrt(1 + 6 * sixth * (quantile - sixth)) - 1) / (2 * sixth)


@cache
def student(freedom: float, tail: float) -> float:
    """What Student's distribution exceeds with probability `tail`: sqrt(freedom) · tan of an angle whose density is
    proportional to cos^(freedom - 1)."""
    angles = (np.arange(_STEPS) + 0.5) / _STEPS * np.pi / 2
    heights = np.cos(angles) ** (freedom - 1)
    above = np.cumsum(heights[::-1])[::-1] / heights.sum() / 2
    return float(sqrt(freedom) * np.tan(np.interp(-tail, -above, angles - np.pi / 4 / _STEPS)))
