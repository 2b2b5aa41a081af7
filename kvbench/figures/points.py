"""The points of an experiment's curves: ours from records, and the published ones of the same methods."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import pandas as pd

from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, is_full
from kvbench.figures.curve import FULL, OURS, PRINTED
from kvbench.metrics.bootstrap import stratified
from kvbench.papers.columns import Column, scores
from kvbench.papers.experiment import Experiment
from kvbench.papers.published import agree, errata, footnotes, published
from kvbench.papers.select import Part

AXES = {"r": "r (reserve ratio)", "budget": "budget (tokens per layer and head)", "ratio": "ratio asked for"}
# units of published scores, and what makes 0 to 100 of them
SCALES = {"score": 1.0, "fraction": 100.0}


@dataclass(frozen=True)
class Published:
    """Points of the curves that a paper prints for one model, and what is known to be wrong in them."""

    points: pd.DataFrame  # columns PRINTED
    source: str = ""
    wrong: tuple[str, ...] = ()


def ours(part: Part, columns: Sequence[Column], x: str) -> pd.DataFrame:
    """One point per setting and column, columns OURS; scores in 0 to 100 with 95 % intervals over samples."""
    names = lines(part.settings, x)
    settings = part.settings if any(map(is_full, part.settings)) else [part.baseline, *part.settings]
    rows = []
    for setting in settings:
        records = part.of(setting, None)
        if records.empty:
            continue
        place = float("nan") if is_full(setting) else _place(setting, records, x)
        for column in columns:
            known = _score(column, records)
            if known is not None:
                line = FULL if is_full(setting) else names[setting.key]
                rows.append((column.short, line, place, records["r_bytes"].mean(), *known))
    return pd.DataFrame(rows, columns=OURS)


def lines(settings: Sequence[Setting], x: str) -> dict[str, str]:
    """The line of each setting, by its key: a method's name; over a parameter, what names have in common.

    Settings are on one line over a parameter where they agree in all others.
    """
    if x in AXES:
        return {setting.key: setting.name for setting in settings}
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        if not is_full(setting):
            others = {key: value for key, value in json.loads(setting.parameters).items() if key != x}
            groups.setdefault(json.dumps([others, setting.ratio, setting.budget]), []).append(setting)
    named = {}
    for group in groups.values():
        names = [setting.name for setting in group]
        common = "".join(a for a, *_ in takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False)))
        for setting in group:
            alone = len(group) == 1 or common == setting.name
            named[setting.key] = setting.label if alone else common.rstrip("_0123456789").removesuffix(f"_{x}")
    return named


def default_x(part: Part) -> str:
    """What an experiment's curve runs over where its file does not say: what its settings ask for."""
    return "budget" if any(setting.budget is not None for setting in part.settings) else "ratio"


def theirs(part: Part, experiment: Experiment, columns: Sequence[Column], x: str) -> Published:
    """The published points of the experiment's methods: of the run's model where they are there, else of its first.

    Only what is printed at a ratio or a budget has a place on an axis.
    """
    axis = "budget" if x == "budget" else "ratio"
    if experiment.published is None or x not in AXES:
        return Published(pd.DataFrame(columns=PRINTED))
    figures = published(experiment.published)
    model = next((name for name in (part.model, *experiment.models) if name in set(figures["model"])), None)
    figures = figures[(figures["model"] == model) & figures["unit"].isin(SCALES) & figures["value"].notna()]
    rows, drawn = [], []
    for setting in {setting.name: setting for setting in part.settings}.values():
        where = experiment.rows(setting.name)
        if where is None:
            continue
        line, full = (FULL, True) if is_full(setting) else (setting.name, False)
        of_method = figures[agree(figures, where) & (full | figures[axis].notna())]
        for column in columns:
            for printed in _printed(of_method, column):
                drawn += list(printed.index)
                place = float("nan") if full else float(printed[axis].iloc[0])
                values = printed["value"] * printed["unit"].map(SCALES)
                rows.append((column.short, line, place, values.mean()))
    if not rows:
        return Published(pd.DataFrame(columns=PRINTED))
    shown = figures.loc[sorted(set(drawn))]
    texts, _ = footnotes(shown, errata(experiment.published))
    source = f"{experiment.paper} {shown['item'].iloc[0]}, {model}"
    return Published(pd.DataFrame(rows, columns=PRINTED), source, tuple(texts))


def _printed(figures: pd.DataFrame, column: Column) -> Iterator[pd.DataFrame]:
    """The figures that make each point of a column: the one, or of an average over fewer tasks those of the tasks."""
    if column.whole:
        figures = figures[figures["column"] == column.name]
        yield from (figures.loc[[index]] for index in figures.index)
        return
    tasks = {one.name for one in column.of}
    figures = figures[figures["column"].isin(tasks)]
    for _, line in figures.groupby(["row", "setting"], sort=False):
        if tasks and set(line["column"]) == tasks:
            yield line


def _place(setting: Setting, records: pd.DataFrame, x: str) -> float:
    """Where a setting is on the axis."""
    if x == "r":
        return records["r"].mean()
    if x in AXES:
        value = getattr(setting, x)
        if value is None:
            raise UserError(
                f"{setting.label} has no {x} for the axis: experiment.x takes {', '.join(AXES)} or a parameter"
            )
        return value
    parameters = json.loads(setting.parameters)
    value = parameters.get(x)
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = [key for key, one in parameters.items() if isinstance(one, int | float) and not isinstance(one, bool)]
        raise UserError(
            f"{setting.name} has no number {x!r} for the axis: experiment.x takes {', '.join([*AXES, *known])}"
        )
    return value


def _score(column: Column, records: pd.DataFrame) -> tuple[float, float, float] | None:
    """Mean over a column's tasks, or its columns, and its interval; None where records of a task are missing.

    The interval is (nan, nan) where a task has fewer than two samples.
    """
    by_task = scores(records)
    strata = [one.tasks for one in column.of] or [(task,) for task in column.tasks]
    if not strata or not all(task in by_task for tasks in strata for task in tasks):
        return None
    values = [[value for task in tasks for value in by_task[task]] for tasks in strata]
    mean = sum(sum(of) / len(of) for of in values) / len(values)
    low, high = stratified(values)
    return 100 * mean, 100 * low, 100 * high
