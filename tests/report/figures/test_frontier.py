"""The figure of frontiers."""

from itertools import pairwise

import pandas as pd
import pytest

from kvbench.metrics.frontier import Point, frontier
from kvbench.report.figures.direct_labels import levels
from kvbench.report.figures.frontier import frontier_figure
from tests.support.figure_records import colour


def points(name, *differences):
    ratios = [0.5 / 2**i for i in range(len(differences))]
    return [Point(f"{name} {r}", r, r, d, d - 0.01, d + 0.01) for r, d in zip(ratios, differences, strict=True)]


def test_curves_margin_and_front_are_drawn():
    frontiers = {name: frontier(points(name, *d), 0.04) for name, d in {"a": (0, 0, -0.4), "b": (-0.1, -0.2)}.items()}
    figure = frontier_figure(frontiers, 0.8, "score", "caption")
    figure.draw_without_rendering()
    axis, bars = [axis for part in figure.subfigs for axis in part.axes]
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["a"].get_ydata().tolist() == pytest.approx([0.8, 0.8, 0.4])
    assert lines["b"].get_xdata().tolist() == [0.5, 0.25]
    assert [line.get_ydata()[0] for line in axis.lines[-2:]] == pytest.approx(
        [0.8, 0.76]
    )  # FullKV and the least that holds
    rings = next(line for line in axis.lines if line.get_markersize() == 10)
    assert sorted(rings.get_xdata()) == [0.125, 0.25]  # as good with fewer bytes, or fewer bytes still
    assert [tick.get_text() for tick in bars.get_yticklabels()] == ["a", "b"]
    held = [line for line in bars.lines if len(line.get_xdata()) == 1]
    assert [line.get_xdata()[0] for line in held] == [0.25]  # b holds nowhere
    assert [text.get_text() for text in bars.texts] == ["the setting with the most bytes loses more"]
    assert {text.get_text(): text.get_color() for text in axis.texts} == {name: colour(name) for name in "ab"}
    assert all(text.get_bbox_patch().get_facecolor() == (1, 1, 1, 1) for text in axis.texts)  # legible on a line


def test_bounds_of_a_difference_are_drawn_as_scores_and_end_at_0_and_1():
    wide = frontier([Point("a 0.5", 0.5, 0.5, -0.1, -0.9, 0.3)], 0.04)
    axis = frontier_figure({"a": wide}, 0.8, "score", "caption").subfigs[0].axes[0]
    assert axis.collections[0].get_segments()[0].tolist() == [[0.5, 0], [0.5, 1]]


def test_names_of_lines_are_as_near_to_their_ends_as_they_can_be():
    assert levels([20, 60], (0, 100)) == [20, 60]
    assert levels([50, 50, 50], (0, 100)) == pytest.approx([44.8, 50, 55.2])
    assert levels([99, 100], (0, 100))[1] <= 100 - 2.6
    many = levels([0] * 40, (0, 100))
    assert min(b - a for a, b in pairwise(many)) == pytest.approx(2.5) and many[0] >= 1


def test_measured_speeds_have_a_panel_of_their_own():
    frontiers = {name: frontier(points(name, *d), 0.04) for name, d in {"a": (0, 0, -0.4), "b": (-0.1, -0.2)}.items()}
    rows = [("full", "full", 10), ("a", "a 0.5", 20), ("a", "a 0.25", 30), ("b", "b 0.5", 15)]
    speeds = pd.DataFrame(
        [{"method": m, "setting": s, "decode_tokens_per_s": v, "low": v - 1, "high": v + 1} for m, s, v in rows]
    )
    figure = frontier_figure(frontiers, 0.8, "score", "caption", speeds)
    _, axis, bars = [axis for part in figure.subfigs for axis in part.axes]
    assert [line.get_ydata()[0] for line in axis.lines[:2]] == pytest.approx([0.8, 0.76])
    drawn = [([*line.get_xdata()], [*line.get_ydata()]) for line in axis.lines[2:]]
    assert drawn[:3] == [([20, 30], [0.8, 0.8]), ([15], [pytest.approx(0.7)]), ([10], [0.8])]
    assert drawn[3] == ([30], [0.8])  # ringed: as good as all others, and faster
    assert bars.get_xlabel().startswith("r_bytes")
