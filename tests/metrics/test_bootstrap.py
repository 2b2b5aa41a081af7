"""Intervals: against theory, and how often they contain the truth (measure_interval_coverage.py has more)."""

import math

import numpy as np
import pytest

from kvbench.metrics.bootstrap import clustered, interval, paired_interval


def beta(rng, found, of):
    return rng.beta(found + 0.5, of - found + 0.5, 200_000)


@pytest.mark.parametrize("found, of", [(10, 10), (0, 10), (7, 10), (19, 20), (60, 120)])
def test_the_interval_of_found_or_not_is_jeffreys_stretched_by_the_unbiased_variance(found, of):
    draws = beta(np.random.default_rng(1), found, of)
    draws = draws.mean() + (draws - draws.mean()) * math.sqrt((of + 1) / (of - 1))
    expected = np.clip(np.quantile(draws, [0.025, 0.975]), 0, 1)
    assert interval([1.0] * found + [0.0] * (of - found)) == pytest.approx(tuple(expected), abs=0.02)


@pytest.mark.parametrize("n, quantile", [(4, 3.182), (10, 2.262), (30, 2.045)])
def test_few_values_without_bounds_have_students_interval(n, quantile):
    values = np.random.default_rng(n).normal(3, 1, n)
    low, high = np.mean([interval(values, None, seed=seed) for seed in range(20)], axis=0)
    half = quantile * values.std(ddof=1) / math.sqrt(n)
    # a bootstrap follows the values' own skewness, so the two halves differ, their sum less
    assert high - low == pytest.approx(2 * half, rel=0.15)
    assert low < values.mean() < high


def test_strata_are_drawn_apart_and_count_alike():
    """The spread of a mean of two tasks' means, whose units are of many and of few."""
    rng = np.random.default_rng(1)
    strata = [rng.normal(0, 1, 400), rng.normal(5, 3, 100)]
    low, high = clustered(strata, [range(400), range(100)], None)
    spread = math.sqrt(sum(of.var(ddof=1) / len(of) for of in strata)) / 2
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert (low + high) / 2 == pytest.approx(np.mean([of.mean() for of in strata]), abs=0.3 * spread)


def test_a_pairs_interval_is_that_of_its_differences():
    rng = np.random.default_rng(1)
    a, b = rng.random(20), rng.random(20)
    tasks = ["qasper"] * 12 + ["trec"] * 8
    of_differences = clustered([(a - b)[:12], (a - b)[12:]], [range(12), range(8)], None)
    assert paired_interval(a, b, tasks, bounds=None) == of_differences
    assert paired_interval(a, b, tasks) == pytest.approx(of_differences, abs=0.02)  # no score lies at a bound


@pytest.mark.parametrize("scores", [[0.5] * 10, [1.0] * 10, [0.0] * 10])
def test_equal_scores_leave_room_for_what_ten_units_do_not_show(scores):
    low, high = interval(scores)
    assert high - low > 0.15 and low <= scores[0] <= high and low >= 0 and high <= 1
    low, high = paired_interval(scores, scores)
    assert -0.25 < low < -0.1 and 0.1 < high < 0.25
    assert interval(scores, None) == (scores[0], scores[0])  # known by definition


def test_scores_outside_of_the_bounds_have_none():
    values = [0.0, 50.0, 100.0, 20.0]
    assert interval(values) == interval(values, None)


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
    assert low == pytest.approx(0.05, abs=0.03) and high == pytest.approx(0.05, abs=0.03)
    low, high = paired_interval(rng.permutation(a), b)
    assert low < 0 < high


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
    alone = interval(contexts)
    assert high - low == pytest.approx(alone[1] - alone[0], rel=0.1)
    assert high - low > 1.8 * np.subtract(*interval(answers)[::-1])


def test_clusters_of_different_sizes_have_the_mean_of_their_values():
    rng = np.random.default_rng(7)
    strata, labels = [rng.normal(size=300)], [np.repeat(np.arange(100), [1, 3, 5] * 33 + [3])]
    low, high = clustered(strata, labels, None)
    assert low < strata[0].mean() < high
    assert clustered([[0.5] * 4, [0.25] * 2], [["a", "a", "b", "b"], ["a", "b"]], None) == (0.375, 0.375)


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


@pytest.mark.parametrize("units", [10, 40])
@pytest.mark.parametrize("found", [0.5, 0.9])
def test_few_needles_cover_the_true_share_about_as_often_as_it_says(units, found):
    rng = np.random.default_rng(units)
    drawn = (rng.random((300, units)) < found).astype(float)
    ends = np.array([interval(scores) for scores in drawn])
    assert 0.92 <= ((ends[:, 0] <= found) & (found <= ends[:, 1])).mean() <= 1
