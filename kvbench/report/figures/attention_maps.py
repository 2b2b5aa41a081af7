"""Maps of attention: queries × keys in some layers, and layers × tokens."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from kvbench.report.figures.style import SCALE, new_figure, panels, rows_of, scale

# The share of attention at the dark end of the scale.
_FAINTEST = 1e-4


def attention_maps(records: pd.DataFrame, caption: str) -> Figure:
    """A row per sample, a panel per layer: queries down, keys across, on one logarithmic scale.

    A dashed box encloses the queries of an answer.
    """
    count = max(map(len, records["layers"]))
    figure, body = new_figure(2.5 * count + 1.2, 2.7 * len(records) + 0.3, caption)
    axes = panels(body, count, count * len(records))
    grid = [axes[start : start + count] for start in range(0, len(axes), count)]
    for row, (_, record) in zip(grid, records.iterrows(), strict=True):
        for axis in row[len(record["layers"]) :]:
            axis.set_visible(False)
        for axis, layer, values in zip(row, record["layers"], record["values"], strict=False):
            image = _draw_map(axis, np.array(values), record["prompt_tokens"], record["answer_tokens"])
            axis.set_title(f"layer {layer}", fontsize=9)
        row[0].set_ylabel(_name(record), fontsize=8)
    body.supxlabel("attended token (position)", fontsize=9)
    body.supylabel("query (position)", fontsize=9)
    powers = FuncFormatter(lambda value, _: f"{value:g}")  # matplotlib's default labels are formulas
    scale(body, image, axes, records.iloc[0]["quantity"], extend="min", format=powers)
    return figure


def _draw_map(axis: Axes, values: np.ndarray, prompt: int, answer: int) -> AxesImage:
    """One map [bins, bins]; keys after the query stay white."""
    n = prompt + answer
    hidden = np.triu(np.ones_like(values, dtype=bool), 1)
    shown: np.ma.MaskedArray = np.ma.array(values.clip(_FAINTEST), mask=hidden)
    image = axis.imshow(shown, cmap=SCALE, norm=LogNorm(_FAINTEST, 1), extent=(0, n, n, 0), interpolation="nearest")
    if answer:
        axis.add_patch(Rectangle((0, prompt), n, answer, fill=False, linestyle="--", linewidth=1.2, clip_on=False))
    axis.locator_params(nbins=4)
    axis.tick_params(labelsize=7)
    return image


def token_maps(records: pd.DataFrame, caption: str) -> Figure:
    """A panel per sample: layers up, tokens across, first the prompt's and then, one by one, the answer's."""
    columns = min(len(records), 3)
    rows = rows_of(len(records), columns)
    layers = max(map(len, records["layers"]))
    height = max(0.07 * layers, 0.5)  # the scale's label needs the least, whatever the number of layers
    figure, body = new_figure(4.2 * columns + 1, (height + 1.3) * rows, caption)
    axes = panels(body, columns, len(records))
    for axis, (_, record) in zip(axes, records.iterrows(), strict=True):
        image = _draw_tokens(axis, record)
        axis.set_title(_name(record), fontsize=8)
    body.supylabel("layer", fontsize=9)
    scale(body, image, axes, records.iloc[0]["quantity"])
    return figure


def _draw_tokens(axis: Axes, record: pd.Series) -> QuadMesh:
    """One sample; the answer takes a quarter of the width, whatever its length."""
    values, answer = np.array(record["values"]), record["answer_tokens"]
    bins = values.shape[1] - answer
    edges = np.linspace(0, 0.75 if answer else 1, bins + 1)
    marks = [(0, "0"), (edges[-1], f"{record['prompt_tokens']}")]
    if answer:
        edges = np.append(edges, np.linspace(0.75, 1, answer + 1)[1:])
        marks.append((1, f"+{answer}"))
        axis.axvline(0.75, color="white", linewidth=2.5)
        axis.axvline(0.75, color="black", linestyle="--", linewidth=1.2)
        axis.text(0.76, 1.01, "answer", transform=axis.transAxes, fontsize=7, va="bottom")
    layers: np.ndarray = np.append(np.array(record["layers"]) - 0.5, record["layers"][-1] + 0.5)
    image = axis.pcolormesh(edges, layers, values, cmap=SCALE, vmin=0, vmax=1)
    axis.set_xticks([place for place, _ in marks], [text for _, text in marks])
    axis.locator_params(axis="y", integer=True, min_n_ticks=1)
    axis.set_xlabel("token (position)", fontsize=8)
    axis.tick_params(labelsize=7)
    return image


def _name(record: pd.Series) -> str:
    """A sample's name, short enough for a panel."""
    name = str(record["sample"])
    return name if len(name) <= 40 else f"{name[:18]}…{name[-18:]}"
