"""Scores by task, as papers print them: a row per task, means of groups, averages; a column per setting."""

from pathlib import Path

import pandas as pd
from rich import get_console
from rich.console import Group

from kvbench.tables.layout import blocks, markdown_rows, rich_rows

TITLE = "task scores × 100; means and averages are those of the printed scores"


def _cells(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text."""
    settings = [column for column in frame if column not in ("kind", "task", "samples")]
    rows = [
        [row["task"], str(row["samples"]), *("–" if pd.isna(row[name]) else f"{row[name]:.2f}" for name in settings)]
        for _, row in frame.iterrows()
    ]
    return ["task", "samples", *settings], rows


def rich_breakdown(frame: pd.DataFrame) -> Group:
    """The table for the terminal, with lines between tasks, groups and averages; as several where it is too wide."""
    header, rows = _cells(frame)
    kinds = list(frame["kind"])
    parts = []
    for columns in blocks(header, rows, 2, get_console().width):
        table = rich_rows([header[i] for i in columns], [[row[i] for i in columns] for row in rows], "", [])
        for row, kind, following in zip(table.rows, kinds, [*kinds[1:], None], strict=True):
            row.end_section = kind != following
        parts += ["", table]
    return Group("", TITLE, *parts)


def write_breakdown(frame: pd.DataFrame, folder: Path, caption: str) -> list[Path]:
    """tasks.csv, and tasks.md to read."""
    lines = markdown_rows(*_cells(frame))
    csv, markdown = folder / "tasks.csv", folder / "tasks.md"
    frame.to_csv(csv, index=False)
    markdown.write_text("\n".join([caption, "", *lines, "", TITLE]) + "\n", encoding="utf-8")
    return [csv, markdown]
