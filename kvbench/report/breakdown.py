"""Scores by task, as papers print them: a row per task, means of groups, averages; a column per setting."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich import get_console
from rich.console import Group

from kvbench.report.table import blocks, markdown_rows, rich_rows

TITLE = "task scores × 100; means and averages are those of the printed scores"


def task_score(values: Sequence[float]) -> float:
    """A task's official score: 100 × the mean over its samples' scores, rounded to 2 digits."""
    return round(100 * sum(values) / len(values), 2)


def range_score(values: Sequence[float]) -> float:
    """The official score of one of LongBench-E's ranges, which eval.py lets NumPy round: 12.345 is 12.34 to it."""
    return float(round(100 * np.mean(values), 2))


def breakdown(
    records: pd.DataFrame,
    groups: Mapping[str, Sequence[str]],
    averages: Mapping[str, Sequence[str]] | None,
    metric: str = "score",
    of_task: Callable[[Sequence[float]], float] = task_score,
) -> pd.DataFrame:
    """One row per task in the order of `groups`, a mean per group of several tasks, and averages.

    A task's score is `of_task` of its samples' scores; means and averages are those of the rounded scores, as in
    the papers' tables. An average of `averages` appears when all its tasks are there; if none is of just the tasks
    that are there, a plain one says how many they are. With None there is no average.

    `records` has the columns task, setting, sample and scores. The result has the columns kind (task, group or
    average), task, samples and one per setting in order of appearance; nan where a setting lacks a task.
    """
    frame = records.assign(score=[scores[metric] for scores in records["scores"]])
    by_task = frame.groupby(["task", "setting"], sort=False)["score"].agg(list)
    scores = by_task.map(of_task).unstack()
    settings = list(frame["setting"].unique())
    scores = scores.reindex([task for members in groups.values() for task in members if task in scores.index])
    samples = frame.groupby("task")["sample"].nunique()
    there = list(scores.index)

    def row(kind: str, name: str, tasks: Sequence[str]) -> dict:
        mean = scores.loc[list(tasks), settings].mean(skipna=False).round(2)
        return {"kind": kind, "task": name, "samples": int(samples[list(tasks)].sum()), **mean}

    rows = [row("task", task, [task]) for task in there]
    for group, members in groups.items():
        present = [task for task in members if task in there]
        if len(present) > 1:
            whole = len(present) == len(members)
            rows.append(row("group", group if whole else f"{group} ({len(present)} of {len(members)})", present))
    if averages is not None:
        whole = {name: tasks for name, tasks in averages.items() if set(tasks) <= set(there)}
        rows += [row("average", name, tasks) for name, tasks in whole.items()]
        if len(there) > 1 and all(len(tasks) < len(there) for tasks in whole.values()):
            rows.append(row("average", f"average of {len(there)} tasks", there))
    return pd.DataFrame(rows)


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
