"""Quality against bytes, and against speed: every setting that was tried, its loss, and the Pareto front."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from kvbench.configuration.conf import titled
from kvbench.metrics.frontier import Frontier, as_score, pareto
from kvbench.records.identity import FULL
from kvbench.report.figures.direct_labels import Named, name_lines
from kvbench.report.figures.style import THRESHOLD, grid_lines, legend_below, line_styles, new_figure

_WHY = {"ha": "right", "va": "center", "fontsize": 7, "color": "0.35"}


def frontier_figure(
    frontiers: Mapping[str, Frontier],
    full: float,
    measure: str,
    caption: str,
    speeds: pd.DataFrame | None = None,
    size: str = "r_bytes",
) -> Figure:
    """Scores (0 to 1) against bytes on a logarithmic axis, with the 95 % interval of their difference from FullKV's.

    A line per method, with its name at its fewest bytes; the dashed line is the least score that keeps the share of
    FullKV's (solid). A ring marks the settings of the Pareto front, a bar below the curves reaches from `possible` to
    `sure` (see `Frontier`).

    speeds  a row per setting with method, setting, decode_tokens_per_s and its low and high; a second panel has the
            scores against it. None: no such panel.
    size    the name of the share of FullKV's bytes that the points have
    """
    styles = line_styles(list(frontiers))
    panels = 1 if speeds is None else 2
    axes: Any  # an array of Axes, whose entries numpy does not type
    caption += " · bars: 95 % interval of the difference from FullKV; dotted: the least that keeps the share"
    figure, body = new_figure(7.2 * panels, 4.6 + 0.12 * len(frontiers), caption)
    heights = (4, 0.25 * len(frontiers) + 0.2)
    axes = body.subplots(2, panels, height_ratios=heights, sharex="col", squeeze=False)
    axis, bars = axes[:, 0]
    entries = [Line2D([], [], color="black", linewidth=1.2, label="FullKV")]
    points: list[tuple[float, float]] = []
    labels: list[Named] = []
    for place, (name, frontier) in enumerate(frontiers.items()):
        style = dict(styles[name]) | ({} if len(frontier.points) > 1 else {"linestyle": "none"})
        shares = [point.bytes for point in frontier.points]
        scores = [full + point.difference for point in frontier.points]
        axis.plot(shares, scores, **style, markersize=4.5, linewidth=1.3, zorder=3, label=titled(name))
        for point in frontier.points:
            ends = [as_score(full, end) for end in (point.low, point.high)]
            axis.vlines(point.bytes, *ends, color=style["color"], linewidth=0.8, zorder=2)
        points += zip(shares, scores, strict=True)
        labels.append(Named(shares[-1], scores[-1], titled(name), style["color"]))
        sure, possible = frontier.sure, frontier.possible
        if sure is not None and possible is not None:  # a setting that certainly keeps the score possibly does
            bars.plot([possible.bytes, sure.bytes], [place, place], color=style["color"], linewidth=3)
            bars.plot(sure.bytes, place, color=style["color"], marker=style["marker"], markersize=5)
        else:
            why = "no setting certainly loses as little" if possible else "the setting with the most bytes loses more"
            bars.text(0.99, place, why, transform=bars.get_yaxis_transform(), **_WHY)
    _ring(axis, [points[i] for i in pareto(points)])
    if labels:
        least = min(label.x for label in labels)
        name_lines(axis, labels, least / 1.15)
        axis.set_xlim(left=least / 3)
    entries.append(Line2D([], [], marker="o", markersize=9, markerfacecolor="none", color="0.35", linewidth=0))
    entries[-1].set_label("Pareto front")
    margin = next(iter(frontiers.values())).margin
    for panel in axes[0]:
        panel.axhline(full, color="black", linewidth=1.2)
        panel.axhline(full - margin, **THRESHOLD)
        panel.set_ylabel(f"{measure} (0 to 1)", fontsize=8)
    bars.set_xscale("log", base=2)
    bars.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"1/{1 / x:.3g}" if x < 1 else f"{x:g}"))
    bars.set_xlabel(f"{size}: share of FullKV's bytes", fontsize=8)
    bars.set_yticks(range(len(frontiers)), [titled(name) for name in frontiers], fontsize=7)
    bars.set_title("fewest bytes: from possible to held (the mark)", fontsize=8)
    bars.set_ylim(len(frontiers) - 0.5, -0.5)
    grid_lines(axis)
    grid_lines(bars)
    if speeds is not None:
        axes[1, 1].remove()
        _decoding(axes[0, 1], frontiers, full, speeds, styles)
    legend_below(body, entries, figure.get_figwidth())
    return figure


def _decoding(
    axis: Axes,
    frontiers: Mapping[str, Frontier],
    full: float,
    speeds: pd.DataFrame,
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    """Scores against decoded tokens a second, with the slowest and the fastest repeat; a star is FullKV."""
    rows = speeds.set_index("setting")
    points: list[tuple[float, float]] = []
    for name, frontier in frontiers.items():
        measured = [point for point in frontier.points if point.setting in rows.index]
        speed = rows.loc[[point.setting for point in measured]]
        scores = [full + point.difference for point in measured]
        style = dict(styles[name]) | ({} if len(measured) > 1 else {"linestyle": "none"})
        axis.plot(speed["decode_tokens_per_s"], scores, **style, markersize=4.5, linewidth=1.3, zorder=3)
        axis.hlines(scores, speed["low"], speed["high"], color=style["color"], linewidth=0.8, zorder=2)
        points += zip(-speed["decode_tokens_per_s"], scores, strict=True)
    baseline = rows.loc[rows["method"] == FULL, "decode_tokens_per_s"]
    axis.plot(baseline, [full] * len(baseline), "*", color="black", markersize=10, zorder=3)
    points += [(-speed, full) for speed in baseline]
    _ring(axis, [(-points[i][0], points[i][1]) for i in pareto(points)])
    axis.tick_params(labelbottom=True)
    axis.set_xlabel("decoded tokens / s (more is better); star: FullKV", fontsize=8)
    grid_lines(axis)


def _ring(axis: Axes, points: Sequence[tuple[float, float]]) -> None:
    axis.plot(
        *zip(*points, strict=True), "o", markersize=10, markerfacecolor="none", color="0.35", linewidth=0, zorder=4
    )
