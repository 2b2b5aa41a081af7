"""Bootstrap intervals."""

from collections.abc import Hashable, Sequence

import numpy as np

RESAMPLES = 2000


def interval(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; (nan, nan) for no values. The same values give the same one."""
    return _interval([values], confidence, seed) if len(values) else (float("nan"), float("nan"))


def stratified(strata: Sequence[Sequence[float]], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of the strata's means, each resampled within itself.

    (nan, nan) where a stratum has fewer than two values, whose variance is unknown.
    """
    if not len(strata) or min(map(len, strata)) < 2:
        return float("nan"), float("nan")
    return _interval(strata, confidence, seed)


def clustered(
    strata: Sequence[Sequence[float]],
    clusters: Sequence[Sequence[Hashable]],
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """As `stratified`, of values that are not drawn one by one: those with one label in `clusters` come together.

    clusters[i] labels the values of strata[i]. (nan, nan) where a stratum has fewer than two clusters.
    """
    if not len(strata) or min(len(set(labels)) for labels in clusters) < 2:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for values, labels in zip(strata, clusters, strict=True):
        _, members = np.unique([str(label) for label in labels], return_inverse=True)
        sums, counts = np.bincount(members, weights=np.asarray(values, dtype=float)), np.bincount(members)
        drawn = rng.integers(len(counts), size=(RESAMPLES, len(counts)))
        means += sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return _tails(means / len(strata), confidence)


def paired_interval(
    a: Sequence[float],
    b: Sequence[float],
    strata: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of a - b; a[i] and b[i] are of one sample, drawn together.

    With `strata`, a label for each sample (its task), it is that of the mean over strata of their means, each
    resampled within itself; with `clusters`, another one (its context), samples with the same one are drawn together.
    (nan, nan) where a stratum has fewer than two samples, or clusters.
    """
    if len(a) != len(b) or any(labels is not None and len(labels) != len(a) for labels in (strata, clusters)):
        raise ValueError(f"{len(a)} and {len(b)} values are not pairs" if len(a) != len(b) else "a label for each pair")
    differences = np.subtract(a, b, dtype=float)
    labels = [None] * len(differences) if strata is None else strata
    members: dict[Hashable, list[int]] = {}
    for i, label in enumerate(labels):
        members.setdefault(label, []).append(i)
    parts = [differences[these] for these in members.values()]
    if clusters is None:
        return stratified(parts, confidence, seed)
    return clustered(parts, [[clusters[i] for i in these] for these in members.values()], confidence, seed)


def _interval(strata: Sequence[Sequence[float]], confidence: float, seed: int) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for values in strata:
        values = np.asarray(values, dtype=float)
        means += values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    return _tails(means / len(strata), confidence)


def _tails(means: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
