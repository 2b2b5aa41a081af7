"""Quality against bytes: every setting that was tried, what is lost, and the front that no setting beats."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from kvbench.config import titled
from kvbench.figures.style import THRESHOLD, grid_lines, legend_below, line_styles, new_figure
from kvbench.metrics.frontier import Frontier, pareto


def frontier_figure(frontiers: Mapping[str, Frontier], full: float, measure: str, caption: str) -> Figure:
    """Scores (0 to 100) against r_bytes on a logarithmic axis, with their one-sided bounds of 95 %.

    A line per method; the dashed line is the least score that keeps the share of FullKV's (solid). A ring marks the
    settings of the Pareto front, a bar below the curves reaches from `possible` to `sure` (see `Frontier`).
    """
    styles = line_styles(list(frontiers))
    figure, body = new_figure(7.2, 4.6 + 0.12 * len(frontiers), caption)
    axis, bars = body.subplots(2, 1, height_ratios=(4, 0.25 * len(frontiers) + 0.2), sharex=True)
    entries = [Line2D([], [], color="black", linewidth=1.2, label="FullKV")]
    points = []
    for place, (name, found) in enumerate(frontiers.items()):
        style = styles[name] | ({} if len(found.points) > 1 else {"linestyle": "none"})
        shares = [point.bytes for point in found.points]
        scores = [100 * (full + point.difference) for point in found.points]
        axis.plot(shares, scores, **style, markersize=4.5, linewidth=1.3, zorder=3, label=titled(name))
        for point in found.points:
            ends = [100 * (full + end) for end in (point.low, point.high)]
            axis.vlines(point.bytes, *ends, color=style["color"], linewidth=0.8, zorder=2)
        points += zip(shares, scores, strict=True)
        entries.append(Line2D([], [], **style, markersize=4.5, label=titled(name)))
        if found.sure is not None:
            bars.plot([found.possible.bytes, found.sure.bytes], [place, place], color=style["color"], linewidth=3)
            bars.plot(found.sure.bytes, place, color=style["color"], marker=style["marker"], markersize=5)
    front = [points[i] for i in pareto(points)]
    axis.plot(
        *zip(*front, strict=True), "o", markersize=10, markerfacecolor="none", color="0.35", linewidth=0, zorder=4
    )
    entries.append(Line2D([], [], marker="o", markersize=9, markerfacecolor="none", color="0.35", linewidth=0))
    entries[-1].set_label("Pareto front")
    margin = next(iter(frontiers.values())).margin
    axis.axhline(100 * full, color="black", linewidth=1.2)
    axis.axhline(100 * (full - margin), **THRESHOLD)
    axis.set_ylabel(f"{measure} (0 to 100)", fontsize=8)
    bars.set_xscale("log", base=2)
    bars.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"1/{1 / x:.3g}" if x < 1 else f"{x:g}"))
    bars.set_xlabel("r_bytes: share of FullKV's bytes", fontsize=8)
    bars.set_yticks(range(len(frontiers)), list(frontiers), fontsize=7)
    bars.set_title("fewest bytes: from possible to held (the mark)", fontsize=8)
    bars.set_ylim(len(frontiers) - 0.5, -0.5)
    for each in (axis, bars):
        grid_lines(each)
    legend_below(body, entries, figure.get_figwidth())
    return figure
