"""A paper's figures of time and memory beside a run's: other machines, so what compares is how settings differ."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from kvbench.benchmarks.speed import LARGEST
from kvbench.experiment import Experiment
from kvbench.report.table import markdown_rows
from kvbench.results.published import agree, errata, footnotes, published

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


def write_beside(told: pd.DataFrame, used: pd.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """published.csv with every digit; published.md with the errata of the figures, and what the paper leaves open."""
    csv, markdown = folder / "published.csv", folder / "published.md"
    told.to_csv(csv, index=False)
    texts, _ = footnotes(used, errata(experiment.published))
    lines = [heading(used, experiment), "", *markdown_rows(*cells(told)), ""]
    lines += [f"- {text}" for text in [*experiment.chosen, *(f"The paper: {text}" for text in texts)]]
    markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [csv, markdown]


def heading(used: pd.DataFrame, experiment: Experiment) -> str:
    return f"{experiment.paper} {experiment.item} ({', '.join(dict.fromkeys(used['model']))}) beside this run"


def cells(told: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    header = [
        "setting",
        "prompt",
        "new",
        "quantity",
        "unit",
        "published",
        "ours",
        "published over first",
        "ours over first",
    ]
    numbers = ["published", "ours", "published_over_first", "ours_over_first"]
    return header, [
        [
            *(str(row[name]) for name in ("setting", "length", "new_tokens", "column", "unit")),
            *("–" if pd.isna(row[name]) else f"{row[name]:.4g}" for name in numbers),
        ]
        for _, row in told.iterrows()
    ]
