"""From an experiment's records to its table as data: one row per model, setting and column."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kvbench.evaluation.settings import Setting
from kvbench.metrics.aggregate import task_score
from kvbench.metrics.bootstrap import paired_interval
from kvbench.papers.columns import ALL, Column, Scores, scores
from kvbench.papers.experiment import Experiment
from kvbench.papers.printed import of_column, of_row
from kvbench.papers.select import Part
from kvbench.tables.blocks import blocks

NAN = float("nan")


def compare(part: Part, columns: Sequence[Column], experiment: Experiment, figures: pd.DataFrame) -> pd.DataFrame:
    """The cells of one model in the table's order, `row` numbering the rows.

    ours         as the papers print it: 100 × the mean over a task's samples, rounded to 2 digits; of several
                 tasks or columns the mean of theirs; in the unit of the published figure
    mean         the same without rounding, 0 to 1; nan for what is no score
    versus_full  ours minus FullKV's over the samples that both have, `low` and `high` of its 95 % interval, and
                 the `fewest` samples of a stratum behind it
    published    the printed figure, `printed` its text and `figure` its row in the published data
    difference   ours minus published
    """
    counted = [(length, block, setting) for length in part.lengths for block, setting in blocks(part.settings)]
    rows = []
    for number, (length, block, setting) in enumerate(counted):
        records = of_columns(part.of(setting, length), columns)
        ours, full = scores(records), scores(part.of(part.baseline, length))
        figures_of_row = of_row(figures, experiment, part.model, setting, length)
        for column in columns:
            printed = of_column(figures_of_row, column)
            unit = "" if printed is None else printed["unit"]
            rows.append(
                {
                    "model": part.model,
                    "row": number,
                    "block": block,
                    **about(setting, length, records),
                    "column": column.name,
                    "unit": unit,
                    **value(column, records, ours, 0.01 if unit == "fraction" else 1.0),
                    **versus(
                        column, ours, {} if setting is part.baseline else full, 0.01 if unit == "fraction" else 1.0
                    ),
                    **beside(printed),
                }
            )
    frame = pd.DataFrame(rows)
    frame["difference"] = (frame["ours"] - frame["published"]).round(4)
    return frame


def of_columns(records: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """The records that a column counts: a run may have made those of other tasks too."""
    tasks = {task for column in columns for task in column.every_task}
    if ALL in tasks or any(column.measure for column in columns):
        return records
    return records[records["task"].isin(tasks)]


def about(setting: Setting, length: int | None, records: pd.DataFrame) -> dict:
    """What is the same in all cells of a row; r and r_bytes are means over its records."""
    return {
        "method": setting.name,
        "ratio": setting.ratio,
        "budget": setting.budget,
        "length": length,
        "floored": bool(records["floored"].any()),
        "r": records["r"].mean(),
        "r_bytes": records["r_bytes"].mean(),
    }


def value(column: Column, records: pd.DataFrame, ours: Scores, scale: float) -> dict:
    """The figure of a cell, nan where records of it are missing."""
    if column.measure is not None:
        measured = round(column.measure(records), 2) if len(records) else NAN
        return {"samples": len(records), "ours": measured, "mean": NAN}
    return {
        "samples": sum(len(ours.get(task, ())) for task in column.every_task),
        "ours": round(_over(column, ours, task_score, 2) * scale, 4),
        "mean": _over(column, ours, np.mean),
    }


def versus(column: Column, ours: Scores, full: Scores, scale: float) -> dict:
    """The difference to FullKV and its interval; nan where one of them lacks a task.

    The strata count alike: of an average they are its columns, of any other column its tasks.
    """
    strata = [one.tasks for one in column.of] or [(task,) for task in column.tasks]
    pairs: tuple[list[float], list[float], list[int]] = ([], [], [])
    for number, tasks in enumerate(strata):
        for task in tasks:
            a, b = ours.get(task, pd.Series(dtype=float)), full.get(task, pd.Series(dtype=float))
            both = a.index.intersection(b.index)
            for known, more in zip(pairs, (a[both], b[both], [number] * len(both)), strict=True):
                known.extend(more)
    differences = np.subtract(*pairs[:2])
    members = [differences[np.equal(pairs[2], number)] for number in range(len(strata))]
    if not strata or not all(map(len, members)):
        return {"versus_full": NAN, "low": NAN, "high": NAN, "fewest": NAN}
    low, high = paired_interval(*pairs)
    of_mean = np.mean([difference.mean() for difference in members])
    scaled = {name: 100 * scale * float(v) for name, v in {"versus_full": of_mean, "low": low, "high": high}.items()}
    return scaled | {"fewest": min(map(len, members))}


def beside(printed: dict | None) -> dict:
    if printed is None:
        return {"published": NAN, "printed": "", "figure": None}
    return {"published": printed["value"], "printed": printed["printed"], "figure": printed["figure"]}


def _over(column: Column, ours: Scores, of_task, digits: int | None = None) -> float:
    """The mean over a column's tasks, or its columns, of a function of a task's scores; rounded where asked."""
    if column.of:
        means = [_over(one, ours, of_task, digits) for one in column.of]
    else:
        means = [of_task(list(ours[task])) if task in ours else NAN for task in column.tasks]
    mean = sum(means) / len(means)
    return mean if digits is None else round(mean, digits)
