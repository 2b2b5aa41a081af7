"""Prefill, decoding, cache and peak memory by setting, for each length and batch."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvbench.benchmarks.speed import ALIKE, PLACE
from kvbench.configuration.conf import titled
from kvbench.report.figures.style import bar_styles, grid_lines, halves, legend_below, new_figure, panels, rows_of

# column of the frame -> title and unit of the panel, and the factor from the column to that unit
PANELS = {
    "decode_tokens_per_s": ("decoding (more is better)", "tokens / s", 1.0),
    "first_token_seconds": ("prefill and compression of a sequence (less is better)", "seconds", 1.0),
    "cache_bytes": ("cache of a sequence after prefill (less is better)", "MiB", 2.0**-20),
    "peak_bytes": ("peak memory of the batch (less is better)", "MiB", 2.0**-20),
}

COLUMNS = 2


def speed_figure(frame: pd.DataFrame, caption: str) -> Figure:
    """A panel for each of PANELS, grouped bars: a group per length and batch, a bar per setting.

    frame  columns setting, PLACE, and the columns of PANELS that were measured. Several rows of a setting at one
           place are repetitions: the bar is their median, the line on it their quartiles. A setting without a number
           has no bar, and the caption says why.
    """
    missing = frame.groupby("setting", sort=False)[[name for name in PANELS if name in frame]].count().sum(axis=1) == 0
    if missing.any():
        caption += f" · no batch fits: {', '.join(titled(setting) for setting in missing.index[missing])}"
    shown = [name for name in PANELS if name in frame and frame[name].notna().any()]
    settings = list(frame["setting"].unique())
    places = list(frame.groupby(PLACE, sort=False).groups)
    columns = min(COLUMNS, len(shown))
    width = max(3.4, 0.14 * len(settings) * len(places) + 1.2)
    figure, body = new_figure(
        width * columns, 2.7 * rows_of(len(shown), columns) + 0.2 * rows_of(len(settings), 4), caption
    )
    axes = panels(body, columns, len(shown))
    for axis, name in zip(axes, shown, strict=True):
        _bars(axis, frame, name, settings, places)
    legend_below(body, axes[0].get_legend_handles_labels()[0], figure.get_figwidth())
    return figure


def _bars(axis: Axes, frame: pd.DataFrame, name: str, settings: list[str], places: list[tuple[int, int, int]]) -> None:
    title, unit, factor = PANELS[name]
    width = 0.8 / len(settings)
    for i, (setting, style) in enumerate(bar_styles(settings).items()):
        of_setting = frame[frame["setting"] == setting].groupby(PLACE, sort=False)[name]
        low, middle, high = (of_setting.quantile(q).reindex(places).to_numpy() * factor for q in (0.25, 0.5, 0.75))
        x = np.arange(len(places)) + (i - (len(settings) - 1) / 2) * width
        axis.bar(x, middle, width, label=titled(setting), **style)
        axis.vlines(x, low, high, color="black", linewidth=0.9)
    several = frame["new_tokens"].nunique() > 1
    labels = [f"{length}{f' + {new}' if several else ''}\n× {batch}" for length, new, batch in places]
    axis.set_xticks(range(len(places)), labels, fontsize=8)
    axis.set_xlabel(f"prompt{' + answer' if several else ''} (tokens) × batch", fontsize=8)
    axis.set_ylabel(unit, fontsize=8)
    axis.set_title("\n".join(halves(title)), fontsize=9)  # in one line the longest is cut off
    grid_lines(axis)
    axis.grid(axis="x", visible=False)


def repetitions(records: pd.DataFrame) -> pd.DataFrame:
    """The frame of `speed_figure`: one row per repetition of each batch that fits, and one without numbers for each
    batch of a setting none of whose batches fits. Empty if no batch of any setting fits.

    The peak is the device's where that was measured, else the counted peak of the cache. Settings name the machine and
    the engine where records differ in them: times of several are not repetitions of one.
    """
    rows = []
    fits = records["fits"].astype(bool)
    fitting = records[fits]
    without = records[~records["setting"].isin(fitting["setting"])]
    fitting = fitting.assign(setting=_with_conditions(fitting))
    for _, record in fitting.iterrows():
        repeats = record["repeats_seconds"]
        peak = record["peak_device_bytes"]
        shared = record[["setting", *PLACE]].to_dict() | {
            "cache_bytes": record["prefilled_bytes"] / record["sequences"],
            "peak_bytes": record["peak_cache_bytes"] if pd.isna(peak) else peak,
        }
        for first, decode in zip(repeats["first_token"], repeats["decode"], strict=True):
            rate = record["sequences"] * record["decode_steps"] / decode
            rows.append(shared | {"first_token_seconds": first, "decode_tokens_per_s": rate})
    if rows:
        rows += without[["setting", *PLACE]].to_dict("records")
    return pd.DataFrame(rows)


def _with_conditions(records: pd.DataFrame) -> list[str]:
    """The setting of each record, with those of ALIKE beside its place in which the records differ."""
    known = [name for name in ALIKE if name not in PLACE and name in records]
    # records of earlier versions were decoded without another engine
    values = records[known].astype(object).fillna({"decode_engine": "eager"})
    differ = [name for name in known if values[name].nunique(dropna=False) > 1]
    words = {"threads": "threads: {}", "torch": "torch {}"}
    added = [
        ", ".join(words.get(name, "{}").format(value) for name, value in zip(differ, row, strict=True))
        for row in values[differ].itertuples(index=False)
    ]
    return [f"{name} ({more})" if more else name for name, more in zip(records["setting"], added, strict=True)]
