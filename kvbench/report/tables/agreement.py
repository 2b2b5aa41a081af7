"""How far settings answer as a baseline does: shares of equal answers, and distances along the baseline's answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from kvbench.metrics.aggregate import DIVERGENCES, MEASURES, tasks_of, units
from kvbench.metrics.bootstrap import OF_SCORES, Interval, clustered
from kvbench.records.consistency import ABOUT
from kvbench.records.identity import FULL
from kvbench.records.same_answer import answer_hash, same_answer
from kvbench.report.tables.text_table import MISSING, number

EQUAL = "equal answers"
BOUNDS = {EQUAL: OF_SCORES, **{name: MEASURES[name].bounds for name in ("top1", *DIVERGENCES)}}
READ = ("kind", "sample", "setting", "method", "key", "scores", "prediction", "tokens", "baseline")
DRAWN = ("sample", "task", "context_id", "unit")  # the task, context and unit of a sample
RUN = ("folder", *ABOUT)  # a run and its model


class Agreement(NamedTuple):
    """The mean of a measure over the samples of both settings, its 95 % interval, and the number of samples."""

    mean: float  # over tasks, if there are several
    interval: Interval
    total: float  # over samples
    samples: int
    units: int


Agreements = Mapping[str, Mapping[str, Agreement]]  # by measure, then by setting


def agreements(records: pd.DataFrame, baseline: str) -> Agreements:
    """Every measure of BOUNDS that the records have for settings other than the baseline.

    A distance counts where it was measured from the baseline: for methods from FullKV in the same run, or in one of
    the same model with the same answer, and from the very answer for engines. Texts that are scored have no answers.
    """
    columns = [name for name in dict.fromkeys((*READ, *DRAWN, *RUN)) if name in records]
    rows = [row for row in records[columns].to_dict("records") if isinstance(row.get("prediction"), str)]
    references = {row["sample"]: row for row in rows if row["setting"] == baseline}
    full = {(row.get("folder"), row["sample"]): row for row in rows if row["method"] == FULL}
    values: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        reference = references.get(row["sample"])
        if reference is None or row["setting"] == baseline:
            continue
        for measure, value in _measures(row, reference, full.get((row.get("folder"), row["sample"]))).items():
            of_sample = {name: row[name] for name in DRAWN if name in row}
            values.setdefault(measure, {}).setdefault(row["setting"], []).append(of_sample | {"value": value})
    return {
        measure: {setting: _agreement(pd.DataFrame(rows), BOUNDS[measure]) for setting, rows in by_setting.items()}
        for measure, by_setting in values.items()
    }


Row = Mapping[str, Any]


def _measures(row: Row, reference: Row, full: Row | None) -> dict[str, float]:
    """The measures of one record and the baseline's record of the same sample; `full` is FullKV's of the same run."""
    measured = from_baseline(row, reference, full)
    distances = {name: row["scores"][name] for name in BOUNDS if measured and name in row["scores"]}
    answered = "nll" not in row["scores"]
    return ({EQUAL: float(same_answer(row, reference))} if answered else {}) | distances


def from_baseline(row: Row, reference: Row, full: Row | None) -> bool:
    """Whether a record's distance is from the baseline's answer."""
    if row["kind"] != "engine":
        return reference["method"] == FULL and full is not None and (full is reference or _alike(full, reference))
    compared_with = row.get("baseline")
    return isinstance(compared_with, str) and compared_with.endswith(f" {answer_hash(reference)}")


def _alike(full: Row, other: Row) -> bool:
    """Whether FullKV of two runs is one model that gave one answer, so that distances from both are the same."""
    return same_answer(full, other) and all(str(full.get(name)) == str(other.get(name)) for name in ABOUT)


def _agreement(rows: pd.DataFrame, bounds: Interval) -> Agreement:
    drawn, values = units(rows), rows["value"]
    strata = [of_task for _, of_task in values.groupby(tasks_of(rows))]
    mean = sum(of_task.mean() for of_task in strata) / len(strata)
    interval = clustered(strata, [drawn[of_task.index] for of_task in strata], bounds)
    return Agreement(mean, interval, values.sum(), len(values), drawn.nunique())


def cells(agreed: Agreements, settings: Sequence[str]) -> dict[str, list[str]]:
    """A table's columns, a cell for each setting."""
    return {
        measure: [_cell(measure, of_setting.get(setting)) for setting in settings]
        for measure, of_setting in agreed.items()
    }


def _cell(measure: str, agreement: Agreement | None) -> str:
    if agreement is None:
        return MISSING
    if measure == EQUAL:
        return f"{agreement.total:,.0f} of {agreement.samples:,}"
    return measure_text(measure, agreement.mean)


def measure_text(measure: str, value: float) -> str:
    """A mean as tables show it: two digits of a divergence, however small it is, and three decimals of all else."""
    return f"{value:.2g}" if measure in DIVERGENCES and not pd.isna(value) else number(value)
