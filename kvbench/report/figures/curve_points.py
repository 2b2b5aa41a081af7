"""The points of an experiment's curves: measured, from records, and the published ones of the same methods."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import pandas as pd

from kvbench.configuration import Experiment
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, is_full
from kvbench.metrics.bootstrap import clustered
from kvbench.papers.columns import Column, drawn
from kvbench.papers.columns import scores as task_scores
from kvbench.papers.published import SCORE_UNITS, agree, errata, footnotes, published
from kvbench.papers.records import ModelRecords
from kvbench.records.identity import FULL
from kvbench.records.ratios import means
from kvbench.records.served_bytes import served_bytes
from kvbench.report.figures.curve import MEASURED_COLUMNS, PUBLISHED_COLUMNS
from kvbench.utils.numbers import is_number
from kvbench.utils.ratios import RATIOS

AXES = {
    **{name: f"{name} ({meaning})" for name, meaning in RATIOS.items()},
    "r": "r (reserve ratio)",
    "budget": "budget (tokens per layer and head)",
    "ratio": "requested ratio",
}


@dataclass(frozen=True)
class PublishedPoints:
    """Points of the curves that a paper prints for one model, their source, and the errata that concern them."""

    points: pd.DataFrame  # columns PUBLISHED_COLUMNS
    source: str = ""
    errata: tuple[str, ...] = ()


def measured_points(of_model: ModelRecords, columns: Sequence[Column], x: str, ratio: str = "r_bytes") -> pd.DataFrame:
    """One point per setting and column, columns MEASURED_COLUMNS; scores in 0 to 100 with 95 % intervals over units."""
    names = line_names(of_model.settings, x)
    settings = of_model.settings if any(map(is_full, of_model.settings)) else [of_model.baseline, *of_model.settings]
    rows = []
    for setting in settings:
        records = of_model.records_of(setting, None)
        if records.empty:
            continue
        place = float("nan") if is_full(setting) else _place(setting, records, x)
        for column in columns:
            known = _score(column, records)
            if known is not None:
                line = FULL if is_full(setting) else names[setting.key]
                rows.append((column.short, line, place, _across(records, ratio), *known))
    return pd.DataFrame(rows, columns=MEASURED_COLUMNS)


def _across(records: pd.DataFrame, ratio: str) -> float:
    """The mean of a ratio; of r_bytes as served."""
    return served_bytes(records).mean() if ratio == "r_bytes" else means(records)[ratio]


def line_names(settings: Sequence[Setting], x: str) -> dict[str, str]:
    """The name of each setting's line, by the setting's key.

    Over r, a ratio or a budget: the method's name. Over a parameter, settings that agree in all others are one line,
    named by the beginning that their names share.
    """
    if x in AXES:
        return {setting.key: setting.name for setting in settings}
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        if not is_full(setting):
            parameters = {key: value for key, value in json.loads(setting.parameters).items() if key != x}
            groups.setdefault(json.dumps([parameters, setting.ratio, setting.budget]), []).append(setting)
    named = {}
    for group in groups.values():
        names = [setting.name for setting in group]
        common = "".join(a for a, *_ in takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False)))
        for setting in group:
            alone = len(group) == 1 or common == setting.name
            named[setting.key] = setting.label if alone else common.rstrip("_0123456789").removesuffix(f"_{x}")
    return named


def default_x(of_model: ModelRecords) -> str:
    """The axis of a curve whose experiment names none: the budget or the ratio that its settings have."""
    return "budget" if any(setting.budget is not None for setting in of_model.settings) else "ratio"


def published_points(
    of_model: ModelRecords, experiment: Experiment, columns: Sequence[Column], x: str
) -> PublishedPoints:
    """The published points of the experiment's methods: of the run's model, or else of the experiment's first one.

    Only values printed for a ratio or a budget have a place on an axis.
    """
    axis = "budget" if x == "budget" else "ratio"
    if x not in AXES:
        return PublishedPoints(pd.DataFrame(columns=PUBLISHED_COLUMNS))
    values = published(experiment.published)
    model = next((name for name in (of_model.model, *experiment.models) if name in set(values["model"])), None)
    values = values[(values["model"] == model) & values["unit"].isin(SCORE_UNITS) & values["value"].notna()]
    rows, drawn = [], []
    for setting in {setting.name: setting for setting in of_model.settings}.values():
        fields = experiment.rows(setting.name)
        if fields is None:
            continue
        line, full = (FULL, True) if is_full(setting) else (setting.name, False)
        of_method = values[agree(values, fields) & (full | values[axis].notna())]
        for column in columns:
            for printed in _printed(of_method, column):
                drawn += list(printed.index)
                place = float("nan") if full else float(printed[axis].iloc[0])
                scores = printed["value"] * printed["unit"].map(SCORE_UNITS)
                rows.append((column.short, line, place, scores.mean()))
    if not rows:
        return PublishedPoints(pd.DataFrame(columns=PUBLISHED_COLUMNS))
    shown = values.loc[sorted(set(drawn))]
    texts, _ = footnotes(shown, errata(experiment.published))
    source = f"{experiment.paper} {shown['item'].iloc[0]}, {model}"
    return PublishedPoints(pd.DataFrame(rows, columns=PUBLISHED_COLUMNS), source, tuple(texts))


def _printed(values: pd.DataFrame, column: Column) -> Iterator[pd.DataFrame]:
    """The published values of each point of a column: one value, or one per task for an average of fewer tasks."""
    if column.whole:
        values = values[values["column"] == column.name]
        yield from (values.loc[[index]] for index in values.index)
        return
    tasks = {part.name for part in column.parts}
    values = values[values["column"].isin(tasks)]
    for _, line in values.groupby(["row", "setting"], sort=False):
        if tasks and set(line["column"]) == tasks:
            yield line


def _place(setting: Setting, records: pd.DataFrame, x: str) -> float:
    """A setting's value on the axis."""
    if x in RATIOS:
        return _across(records, x)
    if x in AXES:
        value: float | None = getattr(setting, x)
        if value is None:
            raise UserError(
                f"{setting.label} has no {x} for the axis: experiment.x takes {', '.join(AXES)} or a parameter"
            )
        return value
    parameters = json.loads(setting.parameters)
    value = parameters.get(x)
    if not is_number(value):
        known = [key for key, number in parameters.items() if is_number(number)]
        raise UserError(
            f"{setting.name} has no number {x!r} for the axis: experiment.x takes {', '.join([*AXES, *known])}"
        )
    return value


class Estimate(NamedTuple):
    mean: float
    low: float  # of its interval
    high: float


def _score(column: Column, records: pd.DataFrame) -> Estimate | None:
    """Mean over a column's tasks, or its columns, and its interval; None where records of a task are missing.

    The interval is (nan, nan) where a task has fewer than two units.
    """
    by_task, strata = task_scores(records), column.strata
    if not strata or not all(task in by_task for task in strata):
        return None
    unit = drawn(records)
    values = [by_task[task] for task in strata]
    mean = sum(sum(scores) / len(scores) for scores in values) / len(values)
    low, high = clustered(values, [[unit[sample] for sample in scores.index] for scores in values])
    return Estimate(100 * mean, 100 * low, 100 * high)
