"""The figures of a run of probes: one for each kind of observation; and numbers by layer as CSV."""

from pathlib import Path

import pandas as pd

from kvbench.report.figures.attention_maps import attention_maps, token_maps
from kvbench.report.figures.layer_lines import by_layer, layer_lines
from kvbench.report.figures.style import save
from kvbench.utils.csv_files import write_csv

# The axes of a probe's values in one layer -> name and drawing of its figure.
FIGURES = {
    "heads": ("layers", layer_lines),
    "tokens": ("token_map", token_maps),
    "map": ("attention_map", attention_maps),
}


def draw_probes(records: pd.DataFrame, folder: Path, caption: str, prefix: str = "") -> list[Path]:
    """The files written: a figure per kind of observation, and layers.csv with those of one number per head."""
    written = []
    for axes, (name, draw) in FIGURES.items():
        some = records[records["axes"] == axes]
        if some.empty:
            continue
        if axes == "heads":
            written.append(folder / f"{prefix}{name}.csv")
            write_csv(by_layer(some), written[-1])
        written += save(draw(some, caption), folder / f"{prefix}{name}")
    return written
