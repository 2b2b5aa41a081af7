"""Score against the requested ratio or budget and against stored bytes, beside the published curves."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kvbench.configuration.conf import titled
from kvbench.records.identity import FULL
from kvbench.report.figures.style import (
    ACROSS,
    PUBLISHED,
    grid_lines,
    intervals,
    legend_below,
    line_styles,
    new_figure,
    panels,
    rows_of,
)

# A row of the frames of `curves` is one point of a line in one column of the experiment.
MEASURED_COLUMNS = "column line x ratio score low high".split()
PUBLISHED_COLUMNS = "column line x score".split()


def curves(
    measured: pd.DataFrame, published: pd.DataFrame, x: str, source: str, caption: str, across: str = "r_bytes"
) -> Figure:
    """A panel per column against `x`, and the last column again against the ratio that `across` describes.

    measured   columns MEASURED_COLUMNS; scores and the ends of their 95 % intervals (nan without an interval) in 0 to
               100. The rows of the line "full" are FullKV's: a horizontal line, whatever their x.
    published  columns PUBLISHED_COLUMNS, scores in 0 to 100; `source` names their table in the legend.

    A published line has the measured line's marker, hollow and grey on grey dashes. Papers print no bytes, so it is
    only in the panels against `x`.
    """
    columns = list(measured["column"].unique())
    names = [line for line in measured["line"].unique() if line != FULL]
    styles = line_styles([*names, *(line for line in published["line"].unique() if line not in (FULL, *names))])
    count = len(columns) + 1
    across_page = min(count, 4)
    entries = _entries(measured, published, styles, source)
    figure, body = new_figure(3.4 * across_page + 0.2, 2.8 * rows_of(count, across_page) + 0.1 * len(entries), caption)
    *axes, last = panels(body, across_page, count)
    for axis, column in zip(axes, columns, strict=True):
        _draw_measured(axis, measured[measured["column"] == column], "x", styles)
        _draw_published(axis, published[published["column"] == column], styles)
        _labels(axis, column, x)
    _draw_measured(last, measured[measured["column"] == columns[-1]], "ratio", styles)
    _labels(last, columns[-1], across)
    legend_below(body, entries, figure.get_figwidth())
    return figure


def _draw_measured(axis: Axes, frame: pd.DataFrame, x: str, styles: dict[str, dict[str, Any]]) -> None:
    for line, points in frame.groupby("line", sort=False):
        if line == FULL:
            axis.axhline(points["score"].iloc[0], color="black", **ACROSS)
            continue
        points = points.sort_values(x)
        axis.plot(points[x], points["score"], **styles[line], markersize=4.5, linewidth=1.3, zorder=3)
    intervals(axis, frame[frame["line"] != FULL], x, styles)


def _draw_published(axis: Axes, frame: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    for line, points in frame.groupby("line", sort=False):
        if line == FULL:
            axis.axhline(points["score"].iloc[0], color=PUBLISHED["color"], **ACROSS)
            continue
        points = points.sort_values("x")
        axis.plot(points["x"], points["score"], marker=styles[line]["marker"], markersize=4.5, **PUBLISHED)


def _labels(axis: Axes, column: str, x: str) -> None:
    axis.set_title(column, fontsize=9)
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel("score (0 to 100)", fontsize=8)
    grid_lines(axis)


def _entries(
    measured: pd.DataFrame, published: pd.DataFrame, styles: dict[str, dict[str, Any]], source: str
) -> list[Line2D]:
    """The legend: measured lines, FullKV, the source of the published lines, the intervals."""
    entries = [Line2D([], [], **style, markersize=4.5, label=titled(name)) for name, style in styles.items()]
    if FULL in set(measured["line"]):
        entries.append(Line2D([], [], color="black", **ACROSS, label="FullKV"))
    if len(published):
        entries.append(Line2D([], [], marker="o", markersize=4.5, **PUBLISHED, label=f"published: {source}"))
    if measured.loc[measured["line"] != FULL, "low"].notna().any():
        entries.append(Line2D([], [], color="black", marker="|", linestyle="", label="95 % interval"))
    return entries
