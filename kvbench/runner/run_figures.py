"""The figures of a run, where matplotlib is installed: without it a line says so; records and tables are the same."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path

import pandas as pd

from kvbench.benchmarks.base import Heatmap
from kvbench.metrics.frontier import Frontier
from kvbench.utils.console import warn
from kvbench.utils.extras import lacking


def drawing(draw: Callable[..., list[Path]]) -> Callable[..., list[Path]]:
    """`draw`, which returns its files; none, and a line, where matplotlib is not installed."""

    @wraps(draw)
    def drawn(*args: object, **options: object) -> list[Path]:
        if missing := lacking("matplotlib"):
            warn(f"no figures: they need {missing}")
            return []
        return draw(*args, **options)

    return drawn


@drawing
def heatmaps(grid: Heatmap, path: Path, caption: str) -> list[Path]:
    from kvbench.report.figures.needle_heatmap import draw_heatmaps

    return draw_heatmaps(grid.cells, grid.metric, path, caption)


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
    frontiers: Mapping[str, Frontier], full: float, measure: str, title: str, speeds: pd.DataFrame | None, path: Path
) -> list[Path]:
    from kvbench.report.figures.frontier import frontier_figure
    from kvbench.report.figures.style import save

    return save(frontier_figure(frontiers, full, measure, title, speeds), path)


@drawing
def served(frame: pd.DataFrame, metric: str, baseline: str, path: Path) -> list[Path]:
    from kvbench.report.figures.served import served_figure
    from kvbench.report.figures.style import save

    return save(served_figure(frame, metric, baseline), path)
