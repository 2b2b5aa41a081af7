"""Where the numbers of a table's footnotes stand; the footnotes are the errata of its published values."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from kvbench.papers.published import footnotes

Numbers = tuple[str, ...]


@dataclass(frozen=True)
class ErrataMarks:
    """The texts of the footnotes, and their numbers, each at the outermost place where it holds.

    A footnote that concerns every published value of the table stands at its title, one that concerns all of a
    model, a row or a column there, and any other at single values, by their index in the published data.
    """

    texts: list[str] = field(default_factory=list)
    title: Numbers = ()
    models: dict[str, Numbers] = field(default_factory=dict)
    rows: dict[tuple[str, int], Numbers] = field(default_factory=dict)
    columns: dict[str, Numbers] = field(default_factory=dict)
    values: dict[int, Numbers] = field(default_factory=dict)

    def of_value(self, cell: pd.Series) -> Numbers:
        """All numbers that concern a cell's published value, except those of the title and the model."""
        numbers = {
            *self.rows.get((cell["model"], cell["row"]), ()),
            *self.columns.get(cell["column"], ()),
            *self.values.get(cell["value_index"], ()),
        }
        return tuple(sorted(numbers, key=int))

    def text_of(self, cell: pd.Series) -> str:
        """The texts of all footnotes that concern a cell, in one string; empty without a published value."""
        numbers = {*self.title, *self.models.get(cell["model"], ()), *self.of_value(cell)}
        return " ".join(self.texts[int(number) - 1] for number in sorted(numbers, key=int)) if cell["printed"] else ""


def errata_marks(cells: pd.DataFrame, values: pd.DataFrame, errata: pd.DataFrame) -> ErrataMarks:
    """The footnotes that concern the published `values` with which `cells` are compared."""
    shown = cells[cells["value_index"].notna()]
    if shown.empty:
        return ErrataMarks()
    indices = sorted(set(shown["value_index"]))
    texts, numbers = footnotes(values.loc[indices], errata)
    concerned = defaultdict(set)  # number of a footnote -> indices of values
    for index, of_value in zip(indices, numbers, strict=True):
        for number in of_value:
            concerned[number].add(index)
    title: list[str] = []
    places: dict[str, dict[Any, list[str]]] = {
        name: defaultdict(list) for name in ("models", "rows", "columns", "values")
    }
    for number, hit in sorted(concerned.items()):
        if hit == set(indices):
            title.append(str(number))
            continue
        left = set(hit)
        for name, keys in (("models", "model"), ("rows", ["model", "row"]), ("columns", "column")):
            for key, of_key in shown.groupby(keys, sort=False)["value_index"]:
                these = set(of_key)
                if these <= left and (len(these) > 1 or name == "models"):
                    places[name][key].append(str(number))
                    left -= these
        for index in left:
            places["values"][index].append(str(number))
    numbers_at = {name: {key: tuple(numbers) for key, numbers in place.items()} for name, place in places.items()}
    return ErrataMarks(texts, tuple(title), **numbers_at)
