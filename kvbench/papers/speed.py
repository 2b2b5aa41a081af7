"""A paper's figures of time and memory beside a run's: other machines, so what compares is how settings differ."""

import re
from collections.abc import Callable, Mapping

import pandas as pd

from kvbench.benchmarks.speed import LARGEST
from kvbench.papers.experiment import Experiment
from kvbench.papers.published import agree, published

# A published column -> what it is of a row of `table.speeds`, and of which rows.
Value = Callable[[pd.Series], float]

OURS: dict[str, Value] = {
    "tokens_per_s": lambda row: row["decode_tokens_per_s"],
    "latency_s": lambda row: row["latency_seconds"],
    "allocation_s": lambda row: row["allocation_seconds"],
    "selection_s": lambda row: row["compress_seconds"],
    "memory_mb": lambda row: row["prefilled_bytes"] / 1e6,
    "kv_share": lambda row: 100 * row["r"],
    "throughput": lambda row: row["over_full"],
}

_PLACE = re.compile(r"(?:prompt|context) (\d+)(K)?(?:, generation (\d+))?")


def beside(frame: pd.DataFrame, experiment: Experiment, model: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row per measured setting and published quantity, and the published rows that were used.

    Columns setting, length, new_tokens, column, unit, published, ours, and both over those of the first setting there
    at the same place. `model` is the run's; another one of the experiment's stands in where it has no figures.
    """
    figures = published(experiment.published)
    figures = figures[figures["column"].isin(experiment.columns) & figures["column"].isin(OURS)]
    models = set(figures["model"]) & {model} or set(figures["model"]) & {experiment.models[0]}
    figures = figures[figures["model"].isin(models)]
    rows, used = [], []
    for _, row in frame.iterrows():
        for index, figure in figures[_of(figures, experiment.rows(row["method"]), row)].iterrows():
            if figure["column"] == "throughput" and row["batch"] != LARGEST:
                continue
            used.append(index)
            rows.append(
                {
                    **row[["setting", "length", "new_tokens"]],
                    **figure[["column", "unit"]],
                    "published": figure["value"],
                    "ours": OURS[figure["column"]](row),
                }
            )
    told = pd.DataFrame(rows, columns="setting length new_tokens column unit published ours".split())
    first = told.groupby(["length", "new_tokens", "column"], sort=False)[["published", "ours"]].transform("first")
    told["published_over_first"], told["ours_over_first"] = (told[name] / first[name] for name in first)
    return told, figures.loc[list(dict.fromkeys(used))]


def _of(figures: pd.DataFrame, where: Mapping[str, str] | None, row: pd.Series) -> pd.Series:
    """Which figures are of a row's method, ratio or budget, length and number of generated tokens."""
    if where is None:
        return pd.Series(False, figures.index)
    hit = agree(figures, where)
    for column in ("budget", "ratio"):
        hit &= figures[column].isna() | (figures[column] == row["asked"])
    return hit & figures["setting"].map(lambda setting: _at(setting, row)).astype(bool)


def _at(setting: str, row: pd.Series) -> bool:
    """Whether a published setting is about a row's place; one that names none is about every place."""
    found = _PLACE.search(setting)
    if not found:
        return True
    length = int(found[1]) * (1024 if found[2] else 1)
    return length == row["length"] and found[3] in (None, str(row["new_tokens"]))
