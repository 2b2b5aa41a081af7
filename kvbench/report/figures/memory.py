"""Sizes of caches: bytes by setting, and the reserve ratio r against r_bytes, the share of bytes stored."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvbench.configuration.conf import titled
from kvbench.report.figures.style import bar_styles, grid_lines, line_styles, new_figure


def cache_sizes(records: pd.DataFrame) -> pd.DataFrame:
    """One row per setting: means over samples of r, r_bytes, and of the stored, full and peak cache in MiB.

    All are in the run's own dtype: beside r_bytes_16, r and the bytes of codes in a float32 run would be too small.
    The peak is that of memory=stream, where layers are compressed one after the other; nan for memory=shared.
    """
    streamed = (records["memory"] == "stream").all()
    rows = [
        {
            "setting": setting,
            "method": group["method"].iloc[0],
            "r": group["r"].mean(),
            "r_bytes": group["r_bytes"].mean(),
            "stored": group["stored_bytes"].mean() / 2**20,
            "full": group["full_bytes"].mean() / 2**20,
            "peak": group["peak_cache_bytes"].mean() / 2**20 if streamed else float("nan"),
        }
        for setting, group in records.groupby("setting", sort=False)
    ]
    return pd.DataFrame(rows)


def memory_figure(records: pd.DataFrame, caption: str) -> Figure:
    """Left the bytes of every setting, right its r_bytes against its r.

    Above the diagonal a cache stores more than r says: for unfolded query heads, r is relative to an unfolded cache,
    which with grouped queries is several times the size of FullKV's.
    """
    frame = cache_sizes(records)
    figure, body = new_figure(10.5, max(3.2, 0.24 * len(frame) + 1), caption)
    left, right = body.subplots(1, 2, width_ratios=(1.3, 1))
    _bars(left, frame)
    _scatter(right, frame)
    return figure


def _bars(axis: Axes, frame: pd.DataFrame) -> None:
    styles = bar_styles(frame["method"])
    for place, row in frame.iterrows():
        axis.barh(place, row["stored"], height=0.7, **styles[row["method"]])
        if pd.notna(row["peak"]):
            axis.barh(place, row["peak"], height=0.7, fill=False, edgecolor="black", linestyle=":", linewidth=1)
        axis.annotate(
            f"{row['r_bytes']:.3f}",
            (max(row["stored"], row["peak"] if pd.notna(row["peak"]) else 0), place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axis.axvline(frame["full"].mean(), color="black", linestyle=(0, (1, 1.5)), linewidth=1)
    axis.set_yticks(frame.index, frame["setting"].map(titled), fontsize=7)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    peak = "; outline: peak while compressing" if frame["peak"].notna().any() else ""
    axis.set_title(f"bytes stored, and r_bytes (dotted: FullKV{peak})", fontsize=9)
    axis.set_xlabel("MiB per prompt, mean over samples", fontsize=8)
    grid_lines(axis)


def _scatter(axis: Axes, frame: pd.DataFrame) -> None:
    end = 1.05 * max(1, frame["r_bytes"].max(), frame["r"].max())
    axis.plot([0, end], [0, end], color="0.5", linestyle="--", linewidth=1, label="r_bytes = r")
    for method, style in line_styles(frame["method"]).items():
        of_method = frame[frame["method"] == method]
        axis.plot(
            of_method["r"],
            of_method["r_bytes"],
            color=style["color"],
            marker=style["marker"],
            markersize=5.5,
            markerfacecolor="none",
            linestyle="",
            label=titled(method),
        )
    axis.set_xlim(0, 1.05 * max(1, frame["r"].max()))
    axis.set_ylim(0, end)
    axis.set_title("above the line: more bytes than r suggests", fontsize=9)
    axis.set_xlabel("r (vectors kept / vectors of the same layout)", fontsize=8)
    axis.set_ylabel("r_bytes (bytes stored / bytes of FullKV)", fontsize=8)
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    grid_lines(axis)
