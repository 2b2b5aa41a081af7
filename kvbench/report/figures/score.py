"""Score against bytes: the picture that every run has, whatever its benchmark."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kvbench.configuration.conf import titled
from kvbench.records.identity import FULL
from kvbench.report.figures.direct_labels import Named, name_lines
from kvbench.report.figures.style import ACROSS, grid_lines, intervals, legend_below, line_styles, new_figure, panels

MOST_NAMED = 16  # methods with a name beside their line; more have a legend
COLUMNS = "method bytes score low high".split()


def score_figure(measures: Mapping[str, pd.DataFrame], size: str, caption: str) -> Figure:
    """A panel for each measure against stored bytes, a line per method and a mark per setting with its interval.

    measures  what the vertical axis says -> a row per setting, columns COLUMNS: bytes as a share of FullKV's; low and
              high are the ends of the 95 % interval, nan without an interval
    size      the name of that share
    """
    methods = list(dict.fromkeys(name for frame in measures.values() for name in frame["method"]))
    styles = line_styles(methods)
    named = len(methods) <= MOST_NAMED
    rows = 0 if named else 0.12 * len(methods)
    figure, body = new_figure(6.4 * len(measures), 3.8 + rows, f"{caption} · bars: 95 % intervals")
    for axis, (measure, frame) in zip(panels(body, len(measures), len(measures)), measures.items(), strict=True):
        drawn = [name for name in styles if (frame["method"] == name).any()]
        labels = [_draw(axis, frame[frame["method"] == name], styles) for name in drawn]
        intervals(axis, frame.assign(line=frame["method"]), "bytes", styles)
        axis.set_xlim(0, 1.04 * max(1, frame["bytes"].max()))
        axis.set_xlabel(f"{size}: share of FullKV's bytes", fontsize=8)
        axis.set_ylabel(measure, fontsize=8)
        grid_lines(axis)
        if named:
            name_lines(axis, labels, 1.02 * axis.get_xlim()[1], right=True)
    if not named:
        entries = [Line2D([], [], **style, markersize=4.5, label=titled(name)) for name, style in styles.items()]
        legend_below(body, entries, figure.get_figwidth())
    return figure


def _draw(axis: Axes, rows: pd.DataFrame, styles: Mapping[str, dict[str, Any]]) -> Named:
    """A method's line; its name is beside its setting with the most bytes. FullKV's score is a line across."""
    rows = rows.sort_values("bytes")
    last = rows.iloc[-1]
    style = dict(styles[last["method"]])
    colour = style["color"]
    if len(rows) == 1:
        style["linestyle"] = "none"
    axis.plot(rows["bytes"], rows["score"], **style, markersize=4.5, linewidth=1.3, zorder=3)
    if last["method"] == FULL:
        axis.axhline(last["score"], color=colour, **ACROSS)
    return Named(last["bytes"], last["score"], titled(last["method"]), colour)
