"""The published values that a run's results are compared with: scores by cell, speed by quantity."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from kvbench.benchmarks.speed import ALIKE, LARGEST
from kvbench.configuration import Experiment
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting
from kvbench.papers.columns import Column
from kvbench.papers.published import SCORE_UNITS, agree, published

# Published column of a speed table -> the same quantity in a row of `tables.speed_table.speeds`.
SPEED_QUANTITIES: dict[str, Callable[[pd.Series], float]] = {
    "tokens_per_s": lambda row: row["decode_tokens_per_s"],
    "latency_s": lambda row: row["latency_seconds"],
    "allocation_s": lambda row: row["allocation_seconds"],
    "selection_s": lambda row: row["compress_seconds"],
    "memory_mb": lambda row: row["prefilled_bytes"] / 1e6,
    "kv_share": lambda row: 100 * row["r"],
    "throughput": lambda row: row["over_full"],
}

_PLACE = re.compile(r"(?:prompt|context) (\d+)(K)?(?:, generation (\d+))?")


def values_of_row(
    values: pd.DataFrame, experiment: Experiment, model: str, setting: Setting, length: int | None = None
) -> list[dict[str, Any]]:
    """The published values of one row: a setting on a model, for RULER at one length.

    `value_index` is their index in `values`. A value that is printed for a budget or a ratio belongs only to settings
    at the same budget or ratio.
    """
    fields = experiment.rows(setting.name)
    if fields is None:
        return []
    if length is not None:
        fields = {**fields, "setting": f"context {length}"}
    hits = values[agree(values, {"model": model, **fields}) & _at_budget_or_ratio(values, setting)]
    return hits.rename_axis("value_index").reset_index().to_dict("records")


def value_of_column(row: list[dict[str, Any]], column: Column) -> dict[str, Any] | None:
    """A row's published value in a column; None if the paper prints none, or if our column lacks some of its tasks.

    Raises UserError if several different values fit, which is a mistake in the experiment's file.
    """
    hits = [
        value for value in row if value["column"] == column.name and (column.measure or value["unit"] in SCORE_UNITS)
    ]
    if not hits or not column.whole:
        return None
    if len({value["printed"] for value in hits}) > 1:
        raise UserError(
            f"several published values of {hits[0]['paper']}'s {hits[0]['item']} fit the method "
            f"{hits[0]['method']!r} in {column.name}: {', '.join(value['printed'] for value in hits)}; in "
            "experiment.methods, name another column of the published data that selects one value, such as setting"
        )
    return hits[0]


def _at_budget_or_ratio(values: pd.DataFrame, setting: Setting) -> pd.Series:
    """Mask of the values with the setting's budget or ratio, or without any; FullKV and thresholds have neither."""
    hit = pd.Series(True, index=values.index)
    if setting.budget is not None or setting.ratio is not None:
        budget, ratio = setting.budget or -1, setting.ratio or -1.0
        hit &= values["budget"].isna() | (values["budget"] == budget).fillna(False)
        hit &= values["ratio"].isna() | ((values["ratio"] - ratio).abs() < 1e-9)
    return hit


class SpeedComparison(NamedTuple):
    compared: pd.DataFrame  # a row per measured setting and published quantity
    used: pd.DataFrame  # the published rows behind them


def compare_speed(frame: pd.DataFrame, experiment: Experiment, model: str) -> SpeedComparison:
    """A paper's published times and memory beside a run's, and the published rows that were used.

    One row per measured setting and published quantity: setting, ALIKE, column, unit, published, ours, and the last two
    divided by the first setting's at the same place, on the same machine and by the same engine; nan where that has no
    time, as it did not fit. The paper's machine is another one, so only these ratios are comparable. `model` is the
    run's model; if it has no published values, the experiment's first model is used.
    """
    values = published(experiment.published)
    values = values[values["column"].isin(experiment.columns) & values["column"].isin(SPEED_QUANTITIES)]
    models = set(values["model"]) & {model} or set(values["model"]) & {experiment.models[0]}
    values = values[values["model"].isin(models)]
    rows, used = [], []
    for _, row in frame.iterrows():
        for index, value in values[_at_place(values, experiment.rows(row["method"]), row)].iterrows():
            if value["column"] == "throughput" and row["batch"] != LARGEST:
                continue
            used.append(index)
            rows.append(
                {
                    **row[["setting", *ALIKE]],
                    **value[["column", "unit"]],
                    "published": value["value"],
                    "ours": SPEED_QUANTITIES[value["column"]](row),
                }
            )
    compared = pd.DataFrame(rows, columns=["setting", *ALIKE, "column", "unit", "published", "ours"])
    place = [*(name for name in ALIKE if name != "decode_engine"), "column"]
    of_first = compared["setting"] == compared.groupby(place, sort=False, dropna=False)["setting"].transform("first")
    for name, alike in (("published", place), ("ours", [*ALIKE, "column"])):
        first = compared[of_first].drop_duplicates(alike).set_index(alike)[name]
        index = pd.MultiIndex.from_frame(compared[alike])
        compared[f"{name}_over_first"] = compared[name] / first.reindex(index).to_numpy()
    return SpeedComparison(compared, values.loc[list(dict.fromkeys(used))])


def _at_place(values: pd.DataFrame, fields: Mapping[str, str] | None, row: pd.Series) -> pd.Series:
    """Mask of the values at a row's method, ratio or budget, prompt length and number of new tokens."""
    if fields is None:
        return pd.Series(False, values.index)
    hit = agree(values, fields)
    for column in ("budget", "ratio"):
        hit &= values[column].isna() | (values[column] == row["requested"])
    return hit & values["setting"].map(lambda setting: _about_place(setting, row)).astype(bool)


def _about_place(setting: str, row: pd.Series) -> bool:
    """Whether a published setting covers a row's lengths; a setting without lengths covers all."""
    match = _PLACE.search(setting)
    if not match:
        return True
    length = int(match[1]) * (1024 if match[2] else 1)
    return length == row["length"] and match[3] in (None, str(row["new_tokens"]))
