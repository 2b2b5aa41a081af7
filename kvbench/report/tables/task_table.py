"""Scores by task, as papers print them: a row per task, means of groups, averages; a column per setting."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Group

from kvbench.config import titled
from kvbench.report.tables.text_table import MISSING, TextTable, write_table

TITLE = "task scores × 100; means and averages are those of the printed scores"


def task_table(frame: pd.DataFrame) -> TextTable:
    """The rows of `metrics.aggregate.breakdown` as text, with lines between tasks, groups and averages."""
    settings = [column for column in frame if column not in ("kind", "task", "samples")]
    rows = [
        [
            row["task"],
            str(row["samples"]),
            *(MISSING if pd.isna(row[name]) else f"{row[name]:.2f}" for name in settings),
        ]
        for _, row in frame.iterrows()
    ]
    return TextTable(["task", "samples", *map(titled, settings)], rows, sections=list(frame["kind"]), lead=2)


def rich_task_table(frame: pd.DataFrame) -> Group:
    """The table for the terminal; where it is too wide, several tables below one another."""
    return Group("", TITLE, "", task_table(frame).rich())


def write_task_table(frame: pd.DataFrame, folder: Path, caption: str) -> list[Path]:
    """tasks.csv with every digit, tasks.md to read."""
    return write_table(frame, replace(task_table(frame), title=caption, notes=[TITLE]), folder, "tasks")
