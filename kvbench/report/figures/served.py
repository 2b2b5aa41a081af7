"""Quality lost against tokens a second: a point for each setting, with the intervals of both."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kvbench.configuration.conf import titled
from kvbench.metrics.frontier import pareto
from kvbench.report.figures.style import grid_lines, legend_below, line_styles, new_figure
from kvbench.report.tables.served_table import best_rows


def served_figure(frame: pd.DataFrame, metric: str, baseline: str) -> Figure:
    """The difference of `metric` from the baseline against tokens a second at the most requests at once that each
    setting and the baseline have; a ring marks what no other setting beats on both axes. `frame` is that of
    `served_table.served`."""
    rows = best_rows(frame, baseline).dropna(subset=["tokens_per_s", "difference"])
    loads = " or ".join(dict.fromkeys(rows["load"]))
    figure, body = new_figure(6.4, 4.4, f"{metric} lost against tokens a second, {loads}")
    axis = body.subplots()
    entries: list[Line2D] = []
    for setting, style in line_styles(list(rows["setting"])).items():
        row = rows[rows["setting"] == setting].iloc[0]
        x, y = row["tokens_per_s"], row["difference"]
        colour = style["color"]
        if pd.notna(row["tokens_per_s_low"]):
            axis.hlines(y, row["tokens_per_s_low"], row["tokens_per_s_high"], color=colour, linewidth=1)
        if pd.notna(row["low"]):
            axis.vlines(x, row["low"], row["high"], color=colour, linewidth=1)
        mark = {**style, "linestyle": "none"} | ({"marker": "*", "markersize": 11} if setting == baseline else {})
        entries += axis.plot(x, y, **mark, label=titled(str(setting)))
    points = [(-x, y) for x, y in zip(rows["tokens_per_s"], rows["difference"], strict=True)]
    best = [(-points[i][0], points[i][1]) for i in pareto(points)]
    if best:
        axis.plot(*zip(*best, strict=True), "o", markersize=13, markerfacecolor="none", color="0.35", linewidth=0)
    axis.axhline(0, color="black", linewidth=0.8, linestyle=":")
    axis.set_xlabel("tokens a second of all requests (more is better)", fontsize=8)
    axis.set_ylabel(f"difference of {metric} from {titled(baseline)}", fontsize=8)
    grid_lines(axis)
    if entries:  # a legend, since names beside marks cover each other where settings are alike
        legend_below(body, entries, figure.get_figwidth())
    return figure
