"""What a speed run leaves: its table, its bars, and a paper's figures beside them."""

from pathlib import Path

import pandas as pd
from rich.console import Group

from kvbench.experiment import Experiment
from kvbench.report.speed import speed_figure
from kvbench.report.style import save
from kvbench.report.table import rich_rows
from kvbench.speed import published
from kvbench.speed.table import cells, notes, repetitions, speeds, write_speeds


def present(
    records: pd.DataFrame, folder: Path, caption: str, experiment: Experiment | None
) -> tuple[Group, list[Path]]:
    """What the terminal shows, and the files written to `folder`, from a run's records alone."""
    frame = speeds(records)
    below = notes(records, frame)
    written = write_speeds(frame, folder, caption, below)
    drawn = repetitions(records)
    if len(drawn):
        written += save(speed_figure(drawn, caption), folder / "speed")
    shown = [rich_rows(*cells(frame, wide=False), caption, below)]
    if experiment is not None and experiment.published is not None:
        told, used = published.beside(frame, experiment, records["model"].iloc[0])
        if len(told):
            heading = published.heading(used, experiment)
            written += published.write_beside(told, used, experiment, folder)
            shown.append(rich_rows(*published.cells(told), heading, []))
    return Group(*shown), written
