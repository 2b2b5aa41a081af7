"""What a run of probes leaves to look at: a figure for each kind of observation, and numbers by layer as CSV."""

from pathlib import Path

import pandas as pd

from kvbench.figures.layers import by_layer, layer_lines
from kvbench.figures.maps import attention_maps, token_maps
from kvbench.figures.style import save

# by what a probe's values of one layer run over
FIGURES = {
    "heads": ("layers", layer_lines),
    "tokens": ("token_map", token_maps),
    "map": ("attention_map", attention_maps),
}


def draw_probes(records: pd.DataFrame, folder: Path, caption: str, prefix: str = "") -> list[Path]:
    """The files written: a figure per kind of observation, and layers.csv for what is one number per head."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for axes, (name, draw) in FIGURES.items():
        some = records[records["axes"] == axes]
        if some.empty:
            continue
        if axes == "heads":
            written.append(folder / f"{prefix}{name}.csv")
            by_layer(some).to_csv(written[-1], index=False)
        written += save(draw(some, caption), folder / f"{prefix}{name}")
    return written
