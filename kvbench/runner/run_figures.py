"""The figures of a run. Without matplotlib, which draws them, a line names it; records and tables are the same."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path

import pandas as pd

from kvbench.benchmarks.base import Heatmap
from kvbench.metrics.aggregate import described
from kvbench.metrics.frontier import Frontier
from kvbench.records.served_bytes import name_of
from kvbench.report.tables.run_table import UNEVEN, summarise, uneven
from kvbench.utils.console import status, warn
from kvbench.utils.extras import lacking


def drawing(draw: Callable[..., list[Path]]) -> Callable[..., list[Path]]:
    """`draw`, which returns its files; if matplotlib is not installed, a function that warns and returns none."""

    @wraps(draw)
    def drawn(*args: object, **options: object) -> list[Path]:
        if missing := lacking("matplotlib"):
            warn(f"no figures: they need {missing}")
            return []
        with status("drawing figures"):
            return draw(*args, **options)

    return drawn


@drawing
def heatmaps(grid: Heatmap, path: Path, caption: str) -> list[Path]:
    from kvbench.report.figures.needle_heatmap import draw_heatmaps

    return draw_heatmaps(grid.cells, grid.metric, path, caption)


@drawing
def score(records: pd.DataFrame, metrics: Sequence[str], path: Path, caption: str) -> list[Path]:
    """The first metric against bytes, and beside it the divergence from FullKV; none where no record has bytes."""
    from kvbench.report.figures.score import score_figure
    from kvbench.report.figures.style import save

    measures = {}
    for name in dict.fromkeys([metrics[0], *["kl"] * ("kl" in metrics)]):
        rows = summarise(records, [name])
        if uneven(rows) and UNEVEN not in caption:
            caption += f" · {UNEVEN}"
        rows = rows.assign(score=rows[name], bytes=rows[name_of(records)]).dropna(subset=["score", "bytes"])
        if len(rows):
            measures[described(name)] = rows
    return save(score_figure(measures, name_of(records), caption), path) if measures else []


@drawing
def probes(records: pd.DataFrame, folder: Path, caption: str) -> list[Path]:
    from kvbench.report.figures.probes import draw_probes

    return draw_probes(records, folder, caption)


@drawing
def speed(records: pd.DataFrame, path: Path, caption: str) -> list[Path]:
    from kvbench.report.figures.speed import repetitions, speed_figure
    from kvbench.report.figures.style import save

    repeats = repetitions(records)
    return save(speed_figure(repeats, caption), path) if len(repeats) else []


@drawing
def frontier(
    frontiers: Mapping[str, Frontier],
    full: float,
    measure: str,
    title: str,
    speeds: pd.DataFrame | None,
    size: str,
    path: Path,
) -> list[Path]:
    from kvbench.report.figures.frontier import frontier_figure
    from kvbench.report.figures.style import save

    return save(frontier_figure(frontiers, full, measure, title, speeds, size), path)


@drawing
def served(frame: pd.DataFrame, metric: str, baseline: str, path: Path) -> list[Path]:
    from kvbench.report.figures.served import served_figure
    from kvbench.report.figures.style import save

    return save(served_figure(frame, metric, baseline), path)
