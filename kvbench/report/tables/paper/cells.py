"""From an experiment's records to its table as data: one row per model, setting and column."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kvbench.configuration import Experiment
from kvbench.evaluation.settings import Setting, is_full
from kvbench.metrics.aggregate import task_score, tasks_of
from kvbench.metrics.bootstrap import paired_interval
from kvbench.papers.columns import ALL, Column, Scores, drawn, scores
from kvbench.papers.comparison import value_of_column, values_of_row
from kvbench.papers.records import ModelRecords
from kvbench.records.ratios import means
from kvbench.records.served_bytes import served_bytes
from kvbench.report.tables.run_table import target_missed

NAN = float("nan")
FULL = 0  # the number of FullKV's block


def compare(
    of_model: ModelRecords, columns: Sequence[Column], experiment: Experiment, values: pd.DataFrame
) -> pd.DataFrame:
    """The cells of one model in the table's order; `row` numbers the rows, `values` are the published values.

    ours         as the papers print it: 100 × the mean over a task's samples, rounded to 2 digits; of several
                 tasks or columns their mean; in the unit of the published value
    mean         the same without rounding, 0 to 1; nan without a score
    versus_full  ours minus FullKV's over the samples that both have, `low` and `high` of its 95 % interval
    published    the published value, `printed` its text and `value_index` its index in `values`
    difference   ours minus published
    """
    numbered = [(length, block, setting) for length in of_model.lengths for block, setting in blocks(of_model.settings)]
    rows = []
    for number, (length, block, setting) in enumerate(numbered):
        records = _of_columns(of_model.records_of(setting, length), columns)
        measured, full = scores(records), scores(of_model.records_of(of_model.baseline, length))
        unit_of = drawn(records)
        printed_row = values_of_row(values, experiment, of_model.model, setting, length)
        for column in columns:
            printed = value_of_column(printed_row, column)
            unit = "" if printed is None else printed["unit"]
            scale = 0.01 if unit == "fraction" else 1.0
            rows.append(
                {
                    "model": of_model.model,
                    "row": number,
                    "block": block,
                    **_about(setting, length, records),
                    "column": column.name,
                    "unit": unit,
                    **_value(column, records, measured, scale),
                    **_versus_full(column, measured, {} if setting is of_model.baseline else full, unit_of, scale),
                    **_published(printed),
                }
            )
    frame = pd.DataFrame(rows)
    frame["difference"] = (frame["ours"] - frame["published"]).round(4)
    return frame


def blocks(settings: Sequence[Setting]) -> list[tuple[int, Setting]]:
    """Every setting with the number of its block, sorted by it: FullKV, then one block per ratio or budget.

    Where all methods have as many ratios or budgets, their first ones are a block, their second ones the next:
    papers compare ratios that agree only nearly. Otherwise settings at the same ratio or budget are one block.
    """
    several = [setting for setting in settings if _requested(setting) is not None]
    counts = Counter(setting.name for setting in several)
    if len(set(counts.values())) <= 1:
        seen: Counter[str] = Counter()
        ranks = {}
        for setting in several:
            seen[setting.name] += 1
            ranks[setting.key] = seen[setting.name]
    else:
        values = list(dict.fromkeys(_requested(setting) for setting in several))
        ranks = {setting.key: values.index(_requested(setting)) + 1 for setting in several}
    neither = 1 if set(ranks.values()) <= {1} else max(ranks.values()) + 1  # the block of thresholds
    numbered = [(FULL if is_full(setting) else ranks.get(setting.key, neither), setting) for setting in settings]
    return sorted(numbered, key=lambda pair: pair[0])


def _requested(setting: Setting) -> float | int | None:
    return setting.ratio if setting.budget is None else setting.budget


def _of_columns(records: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """The records of the columns' tasks: a run may have records of other tasks too."""
    tasks = {task for column in columns for task in column.every_task}
    if ALL in tasks or any(column.measure for column in columns):
        return records
    return records[tasks_of(records).isin(tasks)]


def _about(setting: Setting, length: int | None, records: pd.DataFrame) -> dict[str, Any]:
    """The contents that all cells of a row share; its ratios are means over its records.

    served_bytes is what tables show as r_bytes.
    """
    return {
        "method": setting.name,
        "ratio": setting.ratio,
        "budget": setting.budget,
        "length": length,
        "floored": bool(records["floored"].any()),
        "target_missed": target_missed(records),
        **means(records),
        "served_bytes": served_bytes(records).mean(),
    }


def _value(column: Column, records: pd.DataFrame, by_task: Scores, scale: float) -> dict[str, Any]:
    """A cell's own value, nan where records are missing."""
    if column.measure is not None:
        measured = round(column.measure(records), 2) if len(records) else NAN
        return {"samples": len(records), "ours": measured, "mean": NAN}
    return {
        "samples": sum(len(by_task.get(task, ())) for task in column.every_task),
        "ours": round(_over(column, by_task, task_score, 2) * scale, 4),
        "mean": _over(column, by_task, np.mean),
    }


def _versus_full(
    column: Column, by_task: Scores, full: Scores, unit_of: Mapping[str, str], scale: float
) -> dict[str, Any]:
    """The difference to FullKV, the mean over the column's strata, and its interval; nan where one lacks a task."""
    pairs: tuple[list[float], list[float], list[int], list[str]] = ([], [], [], [])
    strata = column.strata
    for number, task in enumerate(strata):
        a, b = by_task.get(task, pd.Series(dtype=float)), full.get(task, pd.Series(dtype=float))
        both = a.index.intersection(b.index)
        pairs[0].extend(a[both])
        pairs[1].extend(b[both])
        pairs[2].extend([number] * len(both))
        pairs[3].extend(unit_of[sample] for sample in both)
    differences = np.subtract(*pairs[:2])
    members = [differences[np.equal(pairs[2], number)] for number in range(len(strata))]
    if not members or not all(map(len, members)):
        return {"versus_full": NAN, "low": NAN, "high": NAN}
    low, high = paired_interval(*pairs)
    of_mean = np.mean([difference.mean() for difference in members])
    percent = 100 * scale
    return {
        "versus_full": percent * float(of_mean),
        "low": percent * float(low),
        "high": percent * float(high),
    }


def _published(printed: Mapping[str, Any] | None) -> dict[str, Any]:
    if printed is None:
        return {"published": NAN, "printed": "", "value_index": None}
    return {"published": printed["value"], "printed": printed["printed"], "value_index": printed["value_index"]}


def _over(column: Column, by_task: Scores, of_task: Callable[[list[float]], float], digits: int | None = None) -> float:
    """The mean over a column's tasks, or its columns, of `of_task` of a task's scores; rounded to `digits` if given."""
    if column.parts:
        means = [_over(part, by_task, of_task, digits) for part in column.parts]
    else:
        means = [of_task(list(by_task[task])) if task in by_task else NAN for task in column.tasks]
    mean = sum(means) / len(means)
    return mean if digits is None else round(mean, digits)
