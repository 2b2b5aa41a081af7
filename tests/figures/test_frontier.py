"""The figure of frontiers."""

from kvbench.figures.frontier import frontier_figure
from kvbench.metrics.frontier import Point, frontier


def points(name, *differences):
    ratios = [0.5 / 2**i for i in range(len(differences))]
    return [Point(f"{name} {r}", r, r, d, d - 0.01, d + 0.01) for r, d in zip(ratios, differences, strict=True)]


def test_curves_margin_and_front_are_drawn():
    frontiers = {name: frontier(points(name, *d), 0.04) for name, d in {"a": (0, 0, -0.4), "b": (-0.1, -0.2)}.items()}
    figure = frontier_figure(frontiers, 0.8, "score", "caption")
    axis, bars = [axis for part in figure.subfigs for axis in part.axes]
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["a"].get_ydata().tolist() == [80, 80, 40]
    assert lines["b"].get_xdata().tolist() == [0.5, 0.25]
    assert [line.get_ydata()[0] for line in axis.lines[-2:]] == [80, 76]  # FullKV and the least that holds
    rings = next(line for line in axis.lines if line.get_markersize() == 10)
    assert sorted(rings.get_xdata()) == [0.125, 0.25]  # as good with fewer bytes, or fewer bytes still
    assert [tick.get_text() for tick in bars.get_yticklabels()] == ["a", "b"]
    held = [line for line in bars.lines if len(line.get_xdata()) == 1]
    assert [line.get_xdata()[0] for line in held] == [0.25]  # b holds nowhere
