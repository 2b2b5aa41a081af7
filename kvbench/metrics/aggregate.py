"""Scores of tasks, groups of tasks and averages, from the scores of samples."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kvbench.errors import UserError
from kvbench.metrics.bootstrap import OF_SCORES, UNBOUNDED, Interval

# Columns of a `breakdown` besides the settings.
COLUMNS = ("kind", "task", "samples")
# Kinds of rows of `breakdown` whose values are scores; benchmarks add rows of others, counts and shares in per cent.
SCORES = ("task", "group", "average")


def task_score(values: Sequence[float]) -> float:
    """A task's official score: 100 × the mean over its samples' scores, rounded to 2 digits."""
    return round(100 * sum(values) / len(values), 2)


def range_score(values: Sequence[float]) -> float:
    """The official score of one of LongBench-E's ranges, rounded by NumPy as in eval.py: 12.345 becomes 12.34."""
    return float(round(100 * np.mean(values), 2))


def breakdown(
    records: pd.DataFrame,
    groups: Mapping[str, Sequence[str]],
    averages: Mapping[str, Sequence[str]] | None,
    metric: str = "score",
    of_task: Callable[[Sequence[float]], float] = task_score,
) -> pd.DataFrame:
    """One row per task in the order of `groups`, a mean per group of several tasks, and averages.

    A task's score is `of_task` of its samples' scores; means and averages are over the rounded scores, as in the
    papers' tables. An average of `averages` appears when all its tasks have records; if none covers exactly the tasks
    with records, the mean over these is added and says how many they are. None: no average.

    `records` has the columns task, setting, sample and scores. The result has the columns kind (task, group or
    average), task, samples and one per setting in order of appearance; nan where a setting lacks a task.
    """
    frame = records.assign(score=[scores[metric] for scores in records["scores"]])
    by_task = frame.groupby(["task", "setting"], sort=False)["score"].agg(list)
    scores = by_task.map(of_task).unstack()
    settings = list(frame["setting"].unique())
    scores = scores.reindex([task for members in groups.values() for task in members if task in scores.index])
    samples = frame.groupby("task")["sample"].nunique()
    recorded = list(scores.index)

    def row(kind: str, name: str, tasks: Sequence[str]) -> dict[str, Any]:
        mean = scores.loc[list(tasks), settings].mean(skipna=False).round(2)
        return {"kind": kind, "task": name, "samples": int(samples[list(tasks)].sum()), **mean}

    rows = [row("task", task, [task]) for task in recorded]
    for group, members in groups.items():
        present = [task for task in members if task in recorded]
        if len(present) > 1:
            complete = len(present) == len(members)
            rows.append(row("group", group if complete else f"{group} ({len(present)} of {len(members)})", present))
    if averages is not None:
        complete_averages = {name: tasks for name, tasks in averages.items() if set(tasks) <= set(recorded)}
        rows += [row("average", name, tasks) for name, tasks in complete_averages.items()]
        if len(recorded) > 1 and all(len(tasks) < len(recorded) for tasks in complete_averages.values()):
            rows.append(row("average", f"average of {len(recorded)} tasks", recorded))
    return pd.DataFrame(rows)


def check_breakdown(table: object, who: str) -> None:
    """Raise UserError unless what a benchmark made of its records has the form of a `breakdown`."""
    needed = f"a data frame with the columns {', '.join(COLUMNS)} and a number for each setting is needed"
    if not isinstance(table, pd.DataFrame):
        raise UserError(f"{who}.breakdown returned an object of the type {type(table).__name__}: {needed}")
    if lacking := [name for name in COLUMNS if name not in table]:
        raise UserError(f"{who}.breakdown returned a table without {', '.join(lacking)}: {needed}")
    for name in (column for column in table if column not in COLUMNS):
        if pd.to_numeric(table[name], errors="coerce").isna().ne(table[name].isna()).any():
            raise UserError(f"{who}.breakdown returned texts in its column {str(name)!r}: {needed}")


def units(records: pd.DataFrame) -> pd.Series:
    """The independently drawn unit of each record: its `unit`, else its context, else its sample."""
    labels = records["sample"]
    for name in ("context_id", "unit"):
        if name in records:
            labels = records[name].fillna(labels)
    return labels


def tasks_of(records: pd.DataFrame) -> pd.Series:
    """The task of each record, over whose means scores are means; one without a name where records name none."""
    return records["task"].fillna("") if "task" in records else pd.Series("", records.index)


def over_tasks(records: pd.DataFrame, metric: str) -> float:
    """A score as tables have it: the mean over tasks, where records name them, of the mean over the samples that have
    the score."""
    values = pd.Series([scores.get(metric) for scores in records["scores"]], records.index, dtype=float)
    return float(values.groupby(tasks_of(records)).mean().mean())


class Measure(NamedTuple):
    """A measure: its bounds and unit, whether smaller is better, and FullKV's value where it is known by definition."""

    bounds: Interval
    smaller_is_better: bool = False
    of_full: float | None = None  # None: FullKV is measured too
    unit: str = ""


POSITIVE = Interval(0.0, inf)
# The measures of a record's `distance` (kvbench.evaluation.distance, kvbench.engines.distance) in the order of tables.
MEASURES = {
    "top1": Measure(OF_SCORES, of_full=1.0),
    "kl": Measure(POSITIVE, smaller_is_better=True, of_full=0.0, unit="nats per token"),
    "kl_at_least": Measure(POSITIVE, smaller_is_better=True, of_full=0.0, unit="nats per token"),
    "agreed": Measure(OF_SCORES, of_full=1.0),
    "answer_loglik": Measure(UNBOUNDED, of_full=0.0, unit="nats"),
    "bits_per_byte": Measure(POSITIVE, smaller_is_better=True),
    "nll": Measure(POSITIVE, smaller_is_better=True, unit="nats per token"),
}
DISTANCES = tuple(MEASURES)
DIVERGENCES = ("kl", "kl_at_least")  # whose small values count: shown with two digits, not three decimals
AGREEMENT = tuple(name for name, measure in MEASURES.items() if measure.of_full == 1)  # with FullKV, on any prompt
SMALLER_IS_BETTER = frozenset(name for name, measure in MEASURES.items() if measure.smaller_is_better)


def bounds(metric: str, full: bool = False) -> Interval:
    """The bounds of a sample's score or distance; for FullKV, a single point where its value is known by definition."""
    measure = MEASURES.get(metric, Measure(OF_SCORES))
    if full and measure.of_full is not None:
        return Interval(measure.of_full, measure.of_full)
    return measure.bounds


def described(metric: str) -> str:
    """A metric with its unit, or the bounds of a score, and which way is better."""
    measure = MEASURES.get(metric, Measure(OF_SCORES))
    unit = "0 to 1" if measure.bounds == OF_SCORES else measure.unit
    better = "less is better" if measure.smaller_is_better else "more is better"
    return f"{metric} ({', '.join(filter(None, (unit, better)))})"


def with_distances(records: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The records with their distances from FullKV among their scores, and the names of these distances."""
    if "distance" not in records:
        return records, []
    distances = [distance if isinstance(distance, dict) else {} for distance in records["distance"]]
    scores = [{**scores, **distance} for scores, distance in zip(records["scores"], distances, strict=True)]
    names = set().union(*distances)
    return records.assign(scores=scores), [name for name in DISTANCES if name in names]


def measured(records: pd.DataFrame, metrics: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The records and `metrics`; where there are none, as no answer was expected and no distance measured, a score that
    no record has: tables and pages show ratios beside it."""
    if metrics:
        return records, list(metrics)
    return records.assign(scores=[{"score": nan} for _ in records.index]), ["score"]


def tokens_per_s(records: pd.DataFrame) -> float:
    """Decoded tokens per second of the sequences that decoded alone; nan where none did, or none decoded a token."""
    if "decode_seconds" not in records:
        return float("nan")
    # records without the field were decoded alone
    alone = records[records["decode_batch"] == 1] if "decode_batch" in records else records
    seconds, steps = alone["decode_seconds"].sum(), alone["decode_steps"].sum()
    return steps / seconds if seconds and steps else float("nan")
