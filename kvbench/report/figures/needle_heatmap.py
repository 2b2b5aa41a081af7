"""Needle heatmaps: depth × length, all settings of a run side by side in one figure."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import over_tasks
from kvbench.records.served_bytes import name_of, served_bytes
from kvbench.report.figures.style import (
    SCALE,
    TITLE,
    TITLE_LETTER,
    TITLE_LINE,
    new_figure,
    panels,
    rows_of,
    save,
    scale,
    title_lines,
)
from kvbench.utils.text import shortest

# Cells are labelled in grids of at most that many rows and columns.
_MOST_LABELLED = 12
# Inches: the largest width of panels side by side.
_WIDEST = 13
# Inches: the largest height of a picture's panels. All pixels are held at once, and browsers show less than 2**15 rows.
_TALLEST = 100


def draw_heatmaps(records: pd.DataFrame, metric: str, path: Path, caption: str) -> list[Path]:
    """`heatmaps` as PNG and PDF at `path`, which has no suffix; of more settings than a picture holds, the others in
    further pictures, with -2 and so on behind the name."""
    names = list(records["setting"].unique())
    each = Layout.of(records).most
    pages = [names[place : place + each] for place in range(0, len(names), each)]
    written = []
    for number, page in enumerate(pages, 1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        part = f" · picture {number} of {len(pages)}" if len(pages) > 1 else ""
        written += save(heatmaps(records, metric, caption + part, page), place)
    return written


class Layout(NamedTuple):
    """The panels of records' grids in a picture."""

    width: float  # of a panel, inches
    height: float
    columns: int

    @classmethod
    def of(cls, records: pd.DataFrame) -> "Layout":
        names = records["setting"].unique()
        lengths, depths = records["length"].nunique(), records["depth"].nunique()
        labelled = max(lengths, depths) <= _MOST_LABELLED
        width, height = 0.62 * lengths + 0.6, (0.34 if labelled else 0.2) * depths + 1.1
        width = max(width, TITLE_LETTER * max(len(titled(name)) for name in names))
        width, height = min(max(width, 2.3), 6), min(max(height, 2.4), 4)
        height += TITLE_LINE * max(title_lines(titled(name), width).count("\n") for name in names)
        return cls(width, height, min(len(names), 5, int(_WIDEST / width)))

    @property
    def most(self) -> int:
        """The most panels of a picture."""
        return self.columns * int(_TALLEST / self.height)


def heatmaps(records: pd.DataFrame, metric: str, caption: str, names: Sequence[str] | None = None) -> Figure:
    """Mean of `metric` per cell of the grid, on one scale from dark (0) to light (1), legible in greyscale.

    A panel's title has the setting's score as tables have it: over tasks, where records name them (NoLiMa's lengths).

    `records` has the columns setting, length (tokens), depth (percent), scores, r and r_bytes (which may be missing);
    `names` are the settings that are drawn, all unless given.
    """
    all_lengths, all_depths = (sorted(records[name].unique()) for name in ("length", "depth"))
    width, height, columns = Layout.of(records)
    shown = records if names is None else records[records["setting"].isin(names)]
    frame = shown.assign(score=[scores[metric] for scores in shown["scores"]])
    settings = list(frame.groupby("setting", sort=False))
    rows = rows_of(len(settings), columns)
    grids = [
        group.pivot_table(index="depth", columns="length", values="score", aggfunc="mean").reindex(
            index=all_depths, columns=all_lengths
        )
        for _, group in settings
    ]
    if any(grid.isna().any(axis=None) for grid in grids):
        caption += ". White cells: no record of the setting there"
    figure, body = new_figure(columns * width + 1.4, rows * height + 0.83, caption)
    axes = panels(body, columns, len(settings))
    for axis, (setting, group), grid in zip(axes, settings, grids, strict=True):
        image = _draw(axis, grid)
        title = title_lines(titled(setting), width)
        axis.set_title(f"{title}\nmean {over_tasks(group, metric):.2f}\n{_sizes(group)}", fontsize=TITLE)
    body.supxlabel("context length (tokens)", fontsize=10)
    body.supylabel("needle depth (%)", fontsize=10)
    scale(body, image, axes, f"score ({metric}, 0 to 1)")
    return figure


def _sizes(group: pd.DataFrame) -> str:
    """The mean ratios of a setting; empty for another engine, which has none."""
    if "r" not in group or group["r"].isna().all():
        return ""
    return f"r {group['r'].mean():.2f} · {name_of(group)} {served_bytes(group).mean():.2f}"


def _draw(axis: Axes, grid: pd.DataFrame) -> AxesImage:
    """One grid [depths, lengths] of scores."""
    image = axis.imshow(grid, cmap=SCALE, vmin=0, vmax=1, aspect="auto")
    _ticks(axis.set_xticks, list(grid.columns), 6)
    _ticks(axis.set_yticks, list(grid.index), 11)
    axis.tick_params(labelsize=8)
    if max(grid.shape) <= _MOST_LABELLED:
        for (row, column), value in np.ndenumerate(grid):
            if pd.notna(value):
                axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink(value))
    return image


def ink(value: float) -> str:
    """Black or white, whichever is legible on a cell of this value."""
    red, green, blue, _ = mpl.colormaps[SCALE](value)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def _ticks(place: Callable[[range, list[str]], object], labels: list[float], most: int) -> None:
    """At most `most` ticks, evenly spread over the labels."""
    step = math.ceil(len(labels) / most)
    place(range(0, len(labels), step), [shortest(label) for label in labels[::step]])
