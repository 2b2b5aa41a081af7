"""Bootstrap intervals."""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000


def interval(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; (nan, nan) for no values. The same values give the same one."""
    values = np.asarray(values, dtype=float)
    if not len(values):
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values[draws].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)
