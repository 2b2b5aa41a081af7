"""Bootstrap intervals."""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000


def interval(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; (nan, nan) for no values. The same values give the same one."""
    return _interval([values], confidence, seed) if len(values) else (float("nan"), float("nan"))


def stratified(strata: Sequence[Sequence[float]], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of the strata's means, each resampled within itself.

    (nan, nan) where a stratum has fewer than two values, for nothing tells how far its mean can be trusted.
    """
    if not len(strata) or min(map(len, strata)) < 2:
        return float("nan"), float("nan")
    return _interval(strata, confidence, seed)


def _interval(strata: Sequence[Sequence[float]], confidence: float, seed: int) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for values in strata:
        values = np.asarray(values, dtype=float)
        means += values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means / len(strata), [tail, 1 - tail])
    return float(low), float(high)
