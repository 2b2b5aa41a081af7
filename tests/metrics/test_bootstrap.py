"""The paired bootstrap: against a plain statement of it, against theory, and how often it covers the truth."""

import math

import numpy as np
import pytest

from kvbench.metrics.bootstrap import RESAMPLES, clustered, paired_interval, stratified


def plainly(a, b, strata) -> tuple[float, float]:
    """Draw samples with both their scores, stratum by stratum, and take the mean of the strata's differences."""
    rng = np.random.default_rng(0)
    means = [0.0] * RESAMPLES
    labels = list(dict.fromkeys(strata))
    for label in labels:
        ours = [value for value, of in zip(a, strata, strict=True) if of == label]
        theirs = [value for value, of in zip(b, strata, strict=True) if of == label]
        for i, draw in enumerate(rng.integers(len(ours), size=(RESAMPLES, len(ours)))):
            mean_of_ours = math.fsum(ours[k] for k in draw) / len(ours)
            mean_of_theirs = math.fsum(theirs[k] for k in draw) / len(ours)
            means[i] += (mean_of_ours - mean_of_theirs) / len(labels)
    means.sort()

    def quantile(q: float) -> float:
        below = math.floor(q * (RESAMPLES - 1))
        return means[below] + (q * (RESAMPLES - 1) - below) * (means[below + 1] - means[below])

    return quantile(0.025), quantile(0.975)


def test_the_interval_is_that_of_a_plain_statement():
    rng = np.random.default_rng(1)
    strata = ["qasper"] * 9 + ["trec"] * 4 + ["lcc"] * 7
    order = rng.permutation(len(strata))
    strata = [strata[i] for i in order]
    a, b = rng.random(20), rng.random(20)
    assert paired_interval(a, b, strata) == pytest.approx(plainly(a, b, strata), abs=1e-12)
    assert paired_interval(a, b) == pytest.approx(plainly(a, b, ["all"] * 20), abs=1e-12)


def test_many_samples_give_the_interval_of_the_normal_approximation():
    rng = np.random.default_rng(2)
    b = rng.random(4000)
    a = b + rng.normal(0.03, 0.2, 4000)
    half = 1.96 * 0.2 / math.sqrt(4000)
    low, high = paired_interval(a, b)
    assert low == pytest.approx(np.mean(a - b) - half, abs=0.1 * half)
    assert high == pytest.approx(np.mean(a - b) + half, abs=0.1 * half)


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    sizes, shifts = {"short": 40, "long": 120}, {"short": 0.10, "long": -0.02}
    strata = [name for name, size in sizes.items() for _ in range(size)]
    truth = sum(shifts.values()) / 2  # strata count alike, whatever their sizes
    covered = 0
    for _ in range(300):
        b = rng.normal(0.5, 0.3, len(strata))
        a = b + [rng.normal(shifts[name], 0.1) for name in strata]
        low, high = paired_interval(a, b, strata)
        covered += low <= truth <= high
    assert 0.91 <= covered / 300 <= 0.98


def test_what_samples_share_does_not_widen_the_interval():
    rng = np.random.default_rng(4)
    easy = rng.random(100)  # how easy a sample is, for both
    a, b = easy + 0.05, easy
    low, high = paired_interval(a, b)
    assert low == pytest.approx(0.05) and high == pytest.approx(0.05)
    low, high = paired_interval(rng.permutation(a), b)
    assert low < 0 < high


def test_equal_scores_leave_no_difference_at_all():
    assert paired_interval([0.1, 0.9, 0.3], [0.1, 0.9, 0.3]) == (0, 0)


def test_one_sample_of_a_stratum_tells_nothing():
    assert all(math.isnan(end) for end in paired_interval([1, 0, 1], [0, 0, 1], ["a", "a", "b"]))
    assert all(math.isnan(end) for end in paired_interval([], []))


@pytest.mark.parametrize(("a", "b", "strata"), [([1, 2], [1], None), ([1, 2], [1, 2], ["a"])])
def test_scores_that_are_no_pairs_are_refused(a, b, strata):
    with pytest.raises(ValueError, match="pair"):
        paired_interval(a, b, strata)


def test_values_that_come_together_widen_the_interval_as_if_they_were_one():
    rng = np.random.default_rng(5)
    contexts = rng.random(60)
    answers, labels = np.repeat(contexts, 5), np.repeat(np.arange(60), 5)
    low, high = clustered([answers], [labels])
    alone = stratified([contexts])
    assert high - low == pytest.approx(alone[1] - alone[0], rel=0.1)
    assert high - low > 1.8 * np.subtract(*stratified([answers])[::-1])


def test_clusters_of_different_sizes_have_the_mean_of_their_values():
    low, high = clustered([[1, 1, 1, 0]], [["a", "a", "a", "b"]])
    assert (low, high) == (0, 1)
    assert clustered([[0.5] * 4, [0.25] * 2], [["a", "a", "b", "b"], ["a", "b"]]) == (0.375, 0.375)


def test_one_cluster_of_a_stratum_tells_nothing():
    assert all(math.isnan(end) for end in clustered([[1, 0], [1, 0]], [["a", "b"], ["a", "a"]]))


def test_pairs_about_one_context_are_drawn_together():
    rng = np.random.default_rng(6)
    contexts = np.repeat(np.arange(80), 5)
    a = np.repeat(rng.normal(0.1, 0.2, 80), 5)
    b, tasks = np.zeros(400), np.where(contexts < 40, "short", "long").tolist()
    alone, together = (paired_interval(a, b, tasks, clusters=labels) for labels in (None, contexts.tolist()))
    of_means = paired_interval(a[::5], b[::5], tasks[::5])
    assert together[1] - together[0] == pytest.approx(of_means[1] - of_means[0], rel=0.1)
    assert together[1] - together[0] > 1.8 * (alone[1] - alone[0])
    with pytest.raises(ValueError, match="a label for each pair"):
        paired_interval(a, b, clusters=["one"])
