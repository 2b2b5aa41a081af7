"""SimLayerKV's lazy layers: layers × tasks or samples, from the number of tokens kept by each layer."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kvbench.configuration.conf import titled
from kvbench.report.figures.style import SCALE, TITLE, TITLE_LINE, new_figure, panels, rows_of, scale, title_lines


def lazy_share(records: pd.DataFrame) -> pd.DataFrame:
    """The share of samples in which a layer kept less than the whole prompt: a frame [layers, tasks].

    If all samples are of one task, or have no task, the columns are samples. A lazy layer whose budget exceeds a short
    prompt keeps it whole and does not count.
    """
    by = "task" if "task" in records and records["task"].nunique() > 1 else "sample"
    trimmed = [
        np.array(kept) < tokens
        for kept, tokens in zip(records["kept_per_layer"], records["prompt_tokens"], strict=True)
    ]
    frame = pd.DataFrame(np.array(trimmed, dtype=float), index=records.index)
    return frame.groupby(records[by], sort=False).mean().T


def lazy_maps(records: pd.DataFrame, caption: str) -> Figure:
    """`lazy_share` as a map, a panel per setting."""
    shares = [(setting, lazy_share(group)) for setting, group in records.groupby("setting", sort=False)]
    layers, wide = shares[0][1].shape
    named = wide <= 24
    across = min(len(shares), max(1, int(12 / (0.26 * wide + 1))))
    rows = rows_of(len(shares), across)
    names = max(len(str(name)) for name in shares[0][1].columns) if named else 0
    panel = min(0.26 * wide, 8) + 0.8
    width = across * panel + 1
    titles = {setting: title_lines(titled(setting), panel - 0.2) for setting, _ in shares}
    lines = max(title.count("\n") for title in titles.values())
    height = max(0.085 * layers, 1.3)  # the scale's label needs the least, whatever the number of layers
    figure, body = new_figure(width, rows * (height + 0.6 + TITLE_LINE * lines + 0.055 * names), caption)
    axes = panels(body, across, len(shares))
    for axis, (setting, grid) in zip(axes, shares, strict=True):
        image = axis.imshow(grid, cmap=SCALE, vmin=0, vmax=1, aspect="auto", origin="lower", interpolation="nearest")
        axis.set_title(f"{titles[setting]}\n{grid.to_numpy().mean():.0%} of layers", fontsize=TITLE)
        axis.tick_params(labelsize=7)
        axis.locator_params(axis="y", integer=True, min_n_ticks=1)
        if named:
            axis.set_xticks(range(wide), list(grid.columns), rotation=90)
        else:
            axis.set_xlabel(f"{grid.columns.name} (number)", fontsize=8)
    body.supylabel("layer", fontsize=9)
    scale(body, image, axes, "share of samples in which the layer was lazy")
    return figure
