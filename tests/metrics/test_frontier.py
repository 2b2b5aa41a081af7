"""Frontiers of score curves whose answer is known."""

from math import comb

import numpy as np
import pytest

from kvbench.metrics.frontier import Frontier, Point, frontier, pareto, point, refined

RATIOS = [1 / 2, 1 / 4, 1 / 8, 1 / 16]


def curve(differences, spread=0.0, held=RATIOS, floored=()):
    return [
        Point(f"m {ratio:g}", ratio, share, mean, mean - spread, mean + spread, i in floored)
        for i, (ratio, share, mean) in enumerate(zip(RATIOS, held, differences, strict=True))
    ]


@pytest.mark.parametrize(
    "differences, sure, gap, end",
    [
        ([0, 0, -0.2, -0.5], 1 / 4, False, False),  # falls once
        ([0, 0, 0, 0], 1 / 16, False, True),  # flat: the frontier may lie lower
        ([-0.2, -0.2, -0.3, -0.5], None, False, False),  # not even half of the cache will do
        ([0, -0.2, 0, -0.5], 1 / 2, True, False),  # not monotone: what lies behind a failure does not count
    ],
)
def test_exact_curves(differences, sure, gap, end):
    found = frontier(curve(differences)[::-1], margin=0.05)
    assert (None if found.sure is None else found.sure.ratio) == sure
    assert (found.gap, found.end) == (gap, end)
    assert found.possible == found.sure  # nothing is uncertain


def test_uncertainty_opens_a_bracket():
    found = frontier(curve([0, -0.04, -0.1, -0.5], spread=0.07), margin=0.08)
    assert (found.sure.ratio, found.possible.ratio) == (1 / 2, 1 / 8)


def test_intervals_that_are_not_known_make_nothing_sure_and_rule_nothing_out():
    nan = float("nan")
    found = frontier([Point("m", 0.5, 0.5, 0.0, nan, nan)], margin=0.1)
    assert found.sure is None and found.possible is found.points[0]


def test_the_next_ratios_lie_between_the_last_that_holds_and_the_first_that_does_not():
    found = frontier(curve([0, 0, -0.2, -0.5]), margin=0.05)
    assert refined(found) == [0.2102, 0.1768, 0.1487]


def test_above_the_first_point_stands_full_kv():
    assert refined(frontier(curve([-0.2, -0.2, -0.3, -0.5]), margin=0.05)) == [0.8409, 0.7071, 0.5946]


@pytest.mark.parametrize(
    "points",
    [
        curve([0, 0, 0, 0]),  # everything holds
        curve([0, 0, -0.2, -0.5], held=[0.5, 0.25, 0.24, 0.1]),  # neighbours are close
        curve([0, 0, -0.2, -0.2], held=[0.5, 0.25, 0.2, 0.2], floored={2, 3}),  # the method goes no lower
    ],
)
def test_nothing_is_left_to_refine(points):
    assert refined(frontier(points, margin=0.05)) == []


def test_settings_at_a_methods_floor_that_are_the_same_stand_once():
    tried = curve([0, 0, -0.2, -0.2], held=[0.5, 0.25, 0.2, 0.2], floored={2, 3})
    assert [one.ratio for one in frontier(tried, 0.05).points] == [1 / 2, 1 / 4, 1 / 8]
    assert len(frontier(curve([0, 0, -0.2, -0.2], held=[0.5, 0.25, 0.2, 0.2]), 0.05).points) == 4


def test_a_search_over_a_noisy_step_ends_at_the_step():
    """Scores of 200 samples that are equal down to a ratio of 0.15 and fall by half below it."""
    rng = np.random.default_rng(0)
    full = rng.random(200)
    tasks = [i % 2 for i in range(200)]

    def tried(ratio):
        scores = full + rng.normal(0, 0.05, 200) - (0.5 if ratio < 0.15 else 0)
        return point(f"m {ratio}", ratio, [ratio] * 200, scores, full, tasks)

    points = [tried(ratio) for ratio in (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)]
    for _ in range(3):
        points += [tried(ratio) for ratio in refined(frontier(points, margin=0.05 * full.mean()))]
    found = frontier(points, margin=0.05 * full.mean())
    assert isinstance(found, Frontier)
    assert 0.15 <= found.sure.bytes < 0.16
    assert found.possible == found.sure and not found.gap


def test_tasks_count_equally():
    made = point("m", 0.5, [0.5] * 6, [1, 1, 1, 1, 0, 0], [1] * 6, ["a"] * 4 + ["b"] * 2)
    assert made.difference == -0.5
    assert made.low < -0.5 < made.high


@pytest.mark.parametrize(("margin", "samples"), [(0.05, 48), (0.05, 61), (0.05, 97), (0.1, 25), (0.1, 31), (0.1, 64)])
def test_a_setting_that_loses_the_margin_seldom_holds(margin, samples):
    """An end of a 90 % interval, as frontiers had it, holds in 8.5 % of the draws of 48 samples."""

    def holds(lost):
        scores = [0.0] * lost + [1.0] * (samples - lost)
        return point("m", 0.5, [0.5] * samples, scores, [1.0] * samples, ["a"] * samples).low > -margin

    draws = [comb(samples, lost) * margin**lost * (1 - margin) ** (samples - lost) for lost in range(samples + 1)]
    assert sum(draw for lost, draw in enumerate(draws) if holds(lost)) < 0.05


def test_the_pareto_front_has_what_nothing_beats():
    assert pareto([(0.5, 0.9), (0.25, 0.9), (0.25, 0.8), (0.1, 0.5), (0.3, 0.4)]) == [1, 3]
    assert pareto([(0.5, 0.9), (0.5, 0.9)]) == [0, 1]  # equals beat neither
