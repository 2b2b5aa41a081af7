"""Bars of a speed run: decoded tokens per second and cache bytes by setting."""

import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from kvbench.speed.table import MIB, PLACE

# Greys and hatches tell the bars apart, on paper too.
_SHADES = ("0.4", "0.6", "0.8", "0.97")
_HATCHES = ("", "//", "..", "xx")
# Inches of a letter of the title, and of a column of the legend.
_LETTER = 0.08
_COLUMN = 2.2


def draw_speeds(frame: pd.DataFrame, path: Path, caption: str) -> list[Path]:
    """Two panels over the settings, a bar for every place of the grid; PNG and PDF. Nothing where nothing fitted."""
    frame = frame[frame["fits"]]
    if frame.empty:
        return []
    places, settings = frame[PLACE].drop_duplicates(), list(frame["setting"].unique())
    width = min(max(4.5, 0.5 + 0.22 * len(settings) * (len(places) + 1)), 14)
    figure, (speed, size) = plt.subplots(2, 1, figsize=(width, 6.4), sharex=True, layout="constrained")
    thickness = 0.8 / len(places)
    for number, place in enumerate(places.itertuples(index=False)):
        rows = frame[(frame[PLACE] == list(place)).all(axis=1)].set_index("setting").reindex(settings)
        at = np.arange(len(settings)) + (number - (len(places) - 1) / 2) * thickness
        look = {"color": _SHADES[number % len(_SHADES)], "hatch": _HATCHES[number // len(_SHADES) % len(_HATCHES)]}
        style = {"width": thickness, "edgecolor": "black", "linewidth": 0.6, **look}
        rate = rows["decode_tokens_per_s"]
        errors = [(rate - rows["low"]).clip(lower=0), (rows["high"] - rate).clip(lower=0)]
        speed.bar(at, rate, yerr=errors, capsize=2, error_kw={"linewidth": 0.8}, label=_label(place, frame), **style)
        size.bar(at, rows["prefilled_bytes"] / rows["sequences"] / MIB, **style)
    _axis(speed, "decoded tokens/s")
    _axis(size, "cache of a sequence (MiB)")
    size.set_xticks(range(len(settings)), settings, rotation=30, ha="right", fontsize=8)
    figure.legend(fontsize=8, ncols=max(1, min(len(places), int(width / _COLUMN))), loc="outside lower center")
    figure.suptitle(textwrap.fill(caption, int(width / _LETTER)), fontsize=9)
    written = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    for file in written:
        figure.savefig(file, dpi=150, metadata={"CreationDate": None} if file.suffix == ".pdf" else None)
    plt.close(figure)
    return written


def _label(place: tuple, frame: pd.DataFrame) -> str:
    length, new, batch = place
    answer = f" + {new}" if frame["new_tokens"].nunique() > 1 else ""
    return f"{length}{answer} tokens, batch {batch}"


def _axis(axis: Axes, label: str) -> None:
    axis.set_ylabel(label, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", color="0.85", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
