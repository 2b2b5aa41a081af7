"""Scores by task, as papers print them: a row per task, means of groups, averages; a column per setting."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Group

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import COLUMNS, SCORES
from kvbench.report.tables.run_table import UNEVEN, uneven
from kvbench.report.tables.task_latex import task_latex
from kvbench.report.tables.text_table import TextTable, number, write_table
from kvbench.utils.columns import with_columns
from kvbench.utils.files import write_atomically

TITLE = "scores by task, 0 to 1; means and averages are those of the printed scores"


def of_one(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `metrics.aggregate.breakdown` with scores from 0 to 1, as all outputs of a run have them."""
    names = settings_of(frame)
    scores = frame["kind"].isin(SCORES)
    scaled = frame[names].astype(float)
    return with_columns(frame, {name: scaled[name].where(~scores, (scaled[name] / 100).round(6)) for name in names})


def settings_of(frame: pd.DataFrame) -> list[str]:
    return [str(column) for column in frame if column not in COLUMNS]


def task_table(frame: pd.DataFrame, digits: int = 4) -> TextTable:
    """The rows of `of_one` as text, with lines between tasks, groups and averages.

    Scores have 4 `digits`; 2 for official tables, whose scores are a hundred times as large.
    """
    settings = settings_of(frame)
    rows = [
        [
            row["task"],
            str(row["samples"]),
            *(number(row[name], digits if row["kind"] in SCORES else 2) for name in settings),
        ]
        for _, row in frame.iterrows()
    ]
    return TextTable(["task", "samples", *map(titled, settings)], rows, sections=list(frame["kind"]), lead=2)


def rich_task_table(frame: pd.DataFrame, title: str = TITLE, digits: int = 4) -> Group:
    """The table for the terminal; several tables below one another if it is too wide."""
    return Group("", title, "", task_table(frame, digits).rich())


def write_task_table(frame: pd.DataFrame, summary: pd.DataFrame, folder: Path, caption: str) -> list[Path]:
    """tasks.csv with every digit, tasks.md to read, tasks.tex for a paper; `summary` is `run_table.summarise`'s."""
    notes = [TITLE, *[UNEVEN] * uneven(summary)]
    written = write_table(frame, replace(task_table(frame), title=caption, notes=notes), folder, "tasks")
    latex = folder / "tasks.tex"
    write_atomically(
        latex, task_latex(frame, summary, f"{caption}. {TITLE[0].upper()}{TITLE[1:]}", folder.resolve().name)
    )
    return [*written, latex]
