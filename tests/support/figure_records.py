"""Records and parts of figures."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvbench.papers.colours import looks
from kvbench.papers.command_line import configurations
from kvbench.papers.records import select

FIG5 = "+experiment=spindlekv_fig5"


BYTES = {"stored_bytes": 2**20, "full_bytes": 2**21, "peak_cache_bytes": 2**22}


CAPTION = "Paper Figure 1 · " + 30 * "what the run was like and how it differs "


def colour(name: str) -> str | None:
    """The colour of the method with this name, preset, title or label; None for FullKV's."""
    return looks([name], 1)[name].colour


def somehow(setting, task, i) -> float:
    """Scores that depend on setting, task and sample, the same on every machine."""
    return random.Random(f"{setting.label} {task} {i}").random()


def part_of(top: Path, *overrides: str):
    (cfg,) = configurations(overrides)
    part = select(cfg, [top])
    assert part is not None
    return part


def texts(figure: Figure) -> str:
    """Every text of a figure, in one line."""
    figure.draw_without_rendering()
    return " ".join(" ".join(item.get_text().split()) for item in figure.findobj(lambda x: hasattr(x, "get_text")))


def panels(figure: Figure) -> list:
    return [
        axis for axis in figure.findobj(lambda x: hasattr(x, "get_xlabel")) if axis.get_visible() and axis.get_title()
    ]


def is_whole(figure: Figure, label: str) -> bool:
    """Whether the text that begins so is within the figure."""
    figure.draw_without_rendering()
    (text,) = figure.findobj(lambda x: hasattr(x, "get_text") and x.get_text().startswith(label))
    box, whole = text.get_window_extent(), figure.bbox
    return whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1


def layer_ticks(axis: Axes) -> list[float]:
    low, high = axis.get_ylim()
    return [tick for tick in axis.get_yticks() if low <= tick <= high]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for of in figure.findobj(lambda x: hasattr(x, "legend_handles")) for text in of.get_texts()]


def method_records(settings=("full", "snapkv 0.2", "snapkv 0.4"), **fields) -> pd.DataFrame:
    rows = [
        {
            "setting": setting,
            "method": setting.split()[0],
            "sample": f"{length}-{depth}",
            "task": "niah",
            "length": length,
            "depth": depth,
            "r": 1.0 if setting == "full" else float(setting.split()[1]),
            "r_bytes": 1.0 if setting == "full" else 3 * float(setting.split()[1]),
            "memory": "shared",
            "prompt_tokens": 100,
            "kept_per_layer": [100.0, 100.0, 20.0],
            "scores": {"digits": depth / 100, "exact": 0.0},
            **BYTES,
            **fields,
        }
        for setting in settings
        for length in (1000, 2000)
        for depth in (0, 50, 100)
    ]
    return pd.DataFrame(rows)


def probe_records() -> pd.DataFrame:
    common = {"prompt_tokens": 6, "answer_tokens": 2, "layers": [0, 5], "sample": "a sample", "parameters": "{}"}
    return pd.DataFrame(
        [
            {"probe": "lazy_mass", "axes": "heads", "quantity": "mass", "values": [[0.2, 0.4], [0.5, 0.7]]} | common,
            {"probe": "lazy_mass", "axes": "heads", "quantity": "mass", "values": [[0.6, 0.8], [0.5, 0.7]]} | common,
            {"probe": "lazy_tokens", "axes": "tokens", "quantity": "m", "values": [[1, 1, 1, 0.1, 0.2]] * 2} | common,
            {"probe": "map", "axes": "map", "quantity": "share", "values": [np.eye(4).tolist()] * 2} | common,
        ]
    )
