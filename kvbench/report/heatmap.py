"""Needle heatmaps: depth × length, every setting of a run side by side in one figure."""

import math
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

# Cells are labelled while the numbers still fit.
_MOST_LABELLED = 12
# Inches: a letter of a title, and panels side by side, beyond which a page shows too little of each.
_LETTER = 0.08
_WIDEST = 13


def draw_heatmaps(records: pd.DataFrame, metric: str, path: Path, caption: str) -> list[Path]:
    """Mean of `metric` per cell of the grid, from red (0) to green (1) as the papers have it; PNG and PDF."""
    frame = records.assign(score=[scores[metric] for scores in records["scores"]])
    settings = list(frame.groupby("setting", sort=False))
    lengths, depths = frame["length"].nunique(), frame["depth"].nunique()
    labelled = max(lengths, depths) <= _MOST_LABELLED
    width, height = 0.62 * lengths + 0.6, (0.34 if labelled else 0.2) * depths + 1.1
    width = max(width, _LETTER * max(len(setting) for setting, _ in settings))
    width, height = min(max(width, 2.3), 6), min(max(height, 2.4), 4)
    columns = min(len(settings), 5, int(_WIDEST / width))
    rows = math.ceil(len(settings) / columns)
    size = (columns * width + 1.4, rows * height + 1.1)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis, (setting, group) in zip(axes.flat, settings, strict=False):
        grid = group.pivot_table(index="depth", columns="length", values="score", aggfunc="mean")
        image = _draw(axis, grid)
        axis.set_title(
            f"{setting}\nmean {group['score'].mean():.2f} · r_bytes {group['r_bytes'].mean():.2f}", fontsize=9
        )
    for axis in axes.flat[len(settings) :]:
        axis.set_visible(False)
    figure.supxlabel("context length (tokens)", fontsize=10)
    figure.supylabel("needle depth (%)", fontsize=10)
    figure.colorbar(image, ax=axes, label=f"score ({metric})", shrink=0.8, aspect=30)
    figure.suptitle(textwrap.fill(caption, int(size[0] / _LETTER)), fontsize=9)
    written = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    for file in written:
        figure.savefig(file, dpi=150, metadata={"CreationDate": None} if file.suffix == ".pdf" else None)
    plt.close(figure)
    return written


def _draw(axis: Axes, grid: pd.DataFrame):
    """One grid [depths, lengths] of scores, labelled sparsely enough to read."""
    image = axis.imshow(grid, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto")
    _ticks(axis.set_xticks, list(grid.columns), 6)
    _ticks(axis.set_yticks, list(grid.index), 11)
    axis.tick_params(labelsize=8)
    if max(grid.shape) <= _MOST_LABELLED:
        for (row, column), value in ((cell, grid.iat[cell]) for cell in _cells(grid)):
            ink = "white" if not 0.15 < value < 0.9 else "black"  # the ends of the scale are dark
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
    return image


def _cells(grid: pd.DataFrame) -> list[tuple[int, int]]:
    return [(row, column) for row in range(grid.shape[0]) for column in range(grid.shape[1])]


def _ticks(place, labels: list, most: int) -> None:
    """At most `most` ticks, evenly spread over the labels."""
    step = math.ceil(len(labels) / most)
    place(range(0, len(labels), step), [f"{label:g}" for label in labels[::step]])
