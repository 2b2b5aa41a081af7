"""The values that a paper prints, as tables by themselves: `kvbench table +experiment=NAME published=true`."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from kvbench.configuration import Experiment
from kvbench.errors import UserError
from kvbench.papers.published import errata, of_items, published
from kvbench.report.tables.text_table import MISSING, TextTable

SOURCE = "values as the paper prints them; this table has no records of kvbench"


def published_tables(experiments: Sequence[Experiment], models: Sequence[str] = ()) -> list[TextTable]:
    """One table for each model, or for those of `models`: a row per row of the paper, its columns in the paper's order.

    `experiments` is one experiment as each of its models has it: published values may lie in an item for each. A title
    names the item that prints the values, which for many figures is a table. Raises UserError where the paper prints
    none of these models. The experiment has published values.
    """
    experiment = experiments[0]
    items = [each.published for each in experiments]
    values = of_items(published, items)
    printed = list(dict.fromkeys(values["model"]))
    shown = [model for model in printed if not models or model in models]
    if not shown:
        raise UserError(f"{experiment.paper} {experiment.item} has no model {', '.join(models)}: {', '.join(printed)}")
    errors = [f"Known error: {text}" for text in of_items(errata, items)["text"].unique()]
    names = _names(values)
    *tables, last = [_table(experiment.paper, model, values[values["model"] == model], names) for model in shown]
    return [*tables, replace(last, notes=[SOURCE, *errors])]


def _names(values: pd.DataFrame) -> list[str]:
    """The fields that name a row: the paper's label and setting, or where several methods share these, as in tables
    with a column for each method, the method and its setting."""
    names = [name for name in ("row", "setting") if values[name].ne("").any()] or ["method"]
    return ["method", "setting"] if values.duplicated(["model", *names, "column"]).any() else names


def _table(paper: str, model: str, values: pd.DataFrame, names: list[str]) -> TextTable:
    columns = list(dict.fromkeys(values["column"]))
    rows = []
    for labels, row in values.groupby(names, sort=False):
        cells = dict(zip(row["column"], row["printed"], strict=True))
        label = " · ".join(part for part in labels if part) or row["method"].iloc[0]
        rows.append([label, *(cells.get(column, MISSING) for column in columns)])
    title = f"{paper} {values['item'].iloc[0]}, as published · {model}"
    return TextTable([" · ".join(names), *columns], rows, title)
