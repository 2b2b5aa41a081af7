"""Intervals: against theory, and how often they contain the truth (measure_interval_coverage.py has more)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.metrics.aggregate import bounds
from kvbench.metrics.bootstrap import (
    OF_DIFFERENCES,
    OF_SCORES,
    UNSEEN,
    Interval,
    clustered,
    division,
    equal_pairs_needed,
    interval,
    paired_interval,
)
from kvbench.metrics.paired_comparison import verdict
from scripts.benchmarks.measure_interval_coverage import Case, cases, coverage


@pytest.mark.parametrize("found, of", [(10, 10), (0, 10), (7, 10), (19, 20), (60, 120)])
def test_the_interval_of_found_or_not_has_quantiles_of_beta_distributions(found, of):
    """With UNSEEN needles more that were not found for the lower end, that were found for the upper one."""
    rng, each = np.random.default_rng(1), (of - 2) / of
    parts = [rng.standard_gamma(shape, 200_000) if shape else 0 for shape in (found * each, (of - found) * each)]
    seen, missed, unseen = (*parts, rng.standard_gamma(UNSEEN, 200_000))
    low, high = seen / (seen + missed + unseen), (seen + unseen) / (seen + missed + unseen)
    expected = np.quantile(low, 0.025), np.quantile(high, 0.975)
    assert interval([1.0] * found + [0.0] * (of - found)) == pytest.approx(expected, abs=0.02)


def test_strata_are_drawn_apart_and_count_alike():
    """The spread of a mean of two tasks' means, whose units are of many and of few."""
    rng = np.random.default_rng(1)
    strata = [rng.normal(0, 1, 400), rng.normal(5, 3, 100)]
    low, high = clustered(strata, [range(400), range(400, 500)], None)
    spread = math.sqrt(sum(of.var(ddof=1) / len(of) for of in strata)) / 2
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert (low + high) / 2 == pytest.approx(np.mean([of.mean() for of in strata]), abs=0.3 * spread)


def test_a_pairs_interval_is_that_of_its_differences():
    rng = np.random.default_rng(1)
    a, b = rng.random(20), rng.random(20)
    tasks = ["qasper"] * 12 + ["trec"] * 8
    for of_pairs, of_differences in ((None, None), (Interval(0, 1), OF_DIFFERENCES), (Interval(0, math.inf), None)):
        expected = clustered([(a - b)[:12], (a - b)[12:]], [range(12), range(12, 20)], of_differences)
        assert paired_interval(a, b, tasks, bounds=of_pairs) == expected


@pytest.mark.parametrize("scores", [[0.5] * 10, [1.0] * 10, [0.0] * 10])
def test_equal_scores_leave_room_for_what_ten_units_do_not_show(scores):
    low, high = interval(scores)
    assert high - low > 0.15 and low <= scores[0] <= high and low >= 0 and high <= 1
    low, high = paired_interval(scores, scores)
    assert -0.35 < low < -0.2 and 0.2 < high < 0.35
    assert np.isnan(interval(scores, None)).all() and np.isnan(paired_interval(scores, scores, bounds=None)).all()
    assert interval(scores, Interval(scores[0], scores[0])) == (scores[0], scores[0])  # known by definition


def test_scores_outside_of_the_bounds_have_none():
    values = [0.0, 50.0, 100.0, 20.0]
    assert interval(values) == interval(values, None)


def test_what_samples_share_does_not_widen_the_interval():
    rng = np.random.default_rng(4)
    easy = rng.random(100)  # how easy a sample is, for both
    a, b = easy + 0.05, easy
    low, high = paired_interval(a, b)
    assert low == pytest.approx(0.05, abs=0.04) and high == pytest.approx(0.05, abs=0.04)
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


@pytest.mark.parametrize("bounds", [OF_SCORES, None])
def test_tasks_about_the_same_texts_say_no_more_than_one_of_them_if_they_agree(bounds):
    scores = np.random.default_rng(8).random(20)
    once = clustered([scores], [range(20)], bounds)
    assert clustered([scores] * 5, [range(20)] * 5, bounds) == pytest.approx(once)
    apart = clustered([scores] * 5, np.arange(100).reshape(5, 20).tolist(), bounds)
    assert apart.high - apart.low < 0.6 * (once.high - once.low)
    # and if they differ, what a text lacks in one task it may have in another
    opposite = clustered([scores, scores.max() + scores.min() - scores], [range(20)] * 2, None)
    assert opposite.high - opposite.low < 1e-9


@pytest.mark.parametrize("bounds", [OF_SCORES, None])
def test_tasks_that_share_some_of_their_texts_lie_between(bounds):
    random = np.random.default_rng(9)
    strata, width = [random.random(30), random.random(40)], []
    for shared in (0, 15, 30):
        ends = [clustered(strata, [range(30), range(30 - shared, 70 - shared)], bounds, seed=seed) for seed in range(5)]
        width.append(np.mean([end.high - end.low for end in ends]))
        assert all(0 < end.low < 0.5 < end.high < 1 for end in ends)
    assert max(width) < 1.5 * min(width)  # these scores do not depend on the text, so that it matters little


@pytest.mark.parametrize("bounds", [OF_SCORES, None])
def test_a_text_with_most_of_the_questions_makes_the_others_tell_little(bounds):
    """Two texts with 50 questions each and 48 with one tell as much as four or five texts, not as 50."""
    texts = np.repeat(np.arange(50), [50] * 2 + [1] * 48).tolist()
    lost = [0.0 if text in (1, *range(2, 50, 3)) else 1.0 for text in texts]
    low, high = clustered([lost], [texts], bounds)
    few = clustered([[0.0, 1.0, 1.0, 0.0, 1.0]], [range(5)], bounds)
    assert high - low > 0.7 * (few.high - few.low)
    # as large as all others, whatever their number
    assert interval([1.0] * 20).low > clustered([[1.0] * 39], [[0] * 20 + [*range(1, 20)]]).low + 0.2


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


@pytest.fixture(scope="module")
def simulated() -> dict[str, Case]:
    return {f"{case.statistic}, {case.kind}": case for case in cases()}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name, units",
    [
        ("mean, found or not, 95% found", 50),
        ("mean, ROUGE", 10),
        ("mean over 4 tasks, found or not, 98% found", 10),
        ("mean over 4 tasks about the same texts, found or not, 90% found", 20),
        ("mean, texts with 1 to 5 questions, F1", 20),
        ("paired difference, always -0.3, 0.5% changed", 200),
        ("paired difference, F1, 1.0% changed", 200),
        ("paired difference, digits, 2.0% changed", 100),
        ("paired difference, lost, 5.0% changed", 50),
        ("paired difference, slight, 10.0% changed", 10),
        ("paired difference, texts with 1 to 5 questions, F1, 5.0% changed", 20),
        ("paired difference, texts with a few or very many questions, lost, 30.0% changed", 50),
    ],
)
def test_intervals_cover_the_truth_as_often_as_they_say(name, units, simulated):
    """Of 400 data sets; measure_interval_coverage has more kinds and more of each. 3 % are two standard errors."""
    assert coverage(simulated[name], units, 400).share >= 0.93


SCORE = st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0])


@given(st.lists(st.tuples(SCORE, SCORE), min_size=2, max_size=40), st.sampled_from([1, 3]), st.data())
def test_a_loss_in_place_of_a_tie_never_improves_the_verdict(pairs, questions, data):
    ours, theirs = map(list, zip(*pairs, strict=True))
    tied = [i for i, score in enumerate(theirs) if score > 0]
    if not tied:
        return
    place = data.draw(st.sampled_from(tied))
    lost = data.draw(st.floats(0, theirs[place], exclude_max=True))
    texts = [i // questions for i in range(len(pairs))]

    def ends(score):
        return paired_interval([*ours[:place], score, *ours[place + 1 :]], theirs, clusters=texts)

    before, after = ends(theirs[place]), ends(lost)
    if len(set(texts)) < 2:
        assert np.isnan([*before, *after]).all()
        return
    assert after.low <= before.low and after.high <= before.high
    better = {"broken": 0, "undecided": 1, "within": 2}
    for margin in (0.0, 0.02, 0.1, 0.3):
        assert better[verdict(*after, margin)] <= better[verdict(*before, margin)]


def test_one_loss_among_two_hundred_pairs_is_not_broken_and_none_says_no_less_than_few():
    low, high = paired_interval([0.2] + [0.5] * 199, [0.5] * 200)
    assert low < 0 < high and verdict(low, high, 0.0) == "undecided"
    ends = [paired_interval([0.4] * lost + [0.5] * (100 - lost), [0.5] * 100).low for lost in range(8)]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize("of", [[1.0] * 19 + [0.0], [0.0] * 4 + [1.0], [0.99, 1.0], [1.0] * 5])
def test_intervals_of_what_is_bounded_stay_within_its_bounds(of):
    zeros = [0.0] * len(of)
    low, high = interval(of)
    assert 0 <= low <= np.mean(of) <= high <= 1
    for low, high in (paired_interval(of, zeros), paired_interval(zeros, of)):
        assert -1 <= low <= high <= 1
    low, high = interval(of, bounds("top1"))
    assert low >= 0 and high <= 1
    assert interval([0.0, 0.0, 0.3], bounds("kl")).low == 0
    assert paired_interval(of, [1.0] * len(of), bounds=bounds("top1"), bounds_of_b=bounds("top1", full=True)).high <= 0


def test_strata_share_what_was_not_seen():
    """Of 210 pairs in 21 tasks the interval is hardly wider than of as many in one."""
    one, many = [0.0] * 210, np.repeat(np.arange(21), 10).tolist()
    together, apart = paired_interval(one, one), paired_interval(one, one, many)
    assert apart.high - apart.low < 1.5 * (together.high - together.low)
    uneven = paired_interval([0.0] * 110, [0.0] * 110, [0] * 100 + [1] * 10)
    alone = paired_interval([0.0] * 10, [0.0] * 10)
    assert uneven.low == pytest.approx(alone.low / 2, rel=0.3)  # the few may hide a loss, and count for half


def test_the_equal_pairs_that_a_margin_takes_show_it():
    assert [equal_pairs_needed(margin) for margin in (0.0, 0.02, 0.1)] == [None, 149, 31]
    for margin in (0.02, 0.05, 0.1):
        needed = equal_pairs_needed(margin)
        lost = [-paired_interval([0.0] * n, [0.0] * n).low for n in (int(0.9 * needed), int(1.1 * needed) + 1)]
        assert lost[0] > margin > lost[1]
    assert equal_pairs_needed(1e-6) > 1e6


@pytest.mark.parametrize("sizes", [[1] * 4, [1] * 13, [4, 1], [2, 1, 1]])
def test_equal_pairs_of_several_tasks_show_a_margin_once_each_task_has_as_many_as_they_take(sizes):
    names = [f"task {task}" for task, size in enumerate(sizes) for _ in range(size)]
    divided = division(names, range(len(names)))
    assert divided == (1, (1 / len(sizes),) * len(sizes))
    of_task = equal_pairs_needed(0.05, shares=divided.shares)

    def lost(pairs):
        tasks = names * pairs
        return -paired_interval([0.0] * len(tasks), [0.0] * len(tasks), tasks).low

    assert lost(of_task + 2) < 0.05 < lost(of_task - 2)


def test_tasks_about_the_same_texts_are_divided_as_one():
    tasks, texts = ["a"] * 6 + ["b"] * 6 + ["c"] * 3, [*"uvwxyz"] * 2 + [*"mmn"]
    assert division(tasks, texts) == (9 / 5, (2 / 3, 1 / 3))
