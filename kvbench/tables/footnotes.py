"""Where the numbers of the footnotes stand: the errata of the published figures that a table shows."""

from collections import defaultdict
from dataclasses import dataclass, field

import pandas as pd

from kvbench.papers.published import errata, footnotes

Numbers = tuple[str, ...]


@dataclass(frozen=True)
class Marks:
    """The texts of the footnotes, and their numbers, each as far out as it holds.

    What concerns every figure of the table stands at its title, every figure of a model at the model, then of a
    row or of a column; all else at single figures, by their row in the published data.
    """

    texts: list[str] = field(default_factory=list)
    everywhere: Numbers = ()
    models: dict[str, Numbers] = field(default_factory=dict)
    rows: dict[tuple[str, int], Numbers] = field(default_factory=dict)
    columns: dict[str, Numbers] = field(default_factory=dict)
    cells: dict[int, Numbers] = field(default_factory=dict)

    def of_figure(self, cell: pd.Series) -> Numbers:
        """All numbers that concern one figure, but for those at title and model."""
        numbers = {
            *self.rows.get((cell["model"], cell["row"]), ()),
            *self.columns.get(cell["column"], ()),
            *self.cells.get(cell["figure"], ()),
        }
        return tuple(sorted(numbers, key=int))

    def told(self, cell: pd.Series) -> str:
        """The texts of all footnotes that concern one cell."""
        numbers = {*self.everywhere, *self.models.get(cell["model"], ()), *self.of_figure(cell)}
        return " ".join(self.texts[int(number) - 1] for number in sorted(numbers, key=int)) if cell["printed"] else ""


def place(cells: pd.DataFrame, figures: pd.DataFrame, item: str | None) -> Marks:
    """The footnotes that concern the figures which `cells` are compared with."""
    shown = cells[cells["figure"].notna()]
    if item is None or shown.empty:
        return Marks()
    there = sorted(set(shown["figure"]))
    texts, numbers = footnotes(figures.loc[there], errata(item))
    concerned = defaultdict(set)  # number of a footnote -> figures
    for figure, of_figure in zip(there, numbers, strict=True):
        for number in of_figure:
            concerned[number].add(figure)
    everywhere, places = [], {name: defaultdict(list) for name in ("models", "rows", "columns", "cells")}
    for number, hit in sorted(concerned.items()):
        if hit == set(there):
            everywhere.append(str(number))
            continue
        left = set(hit)
        for name, keys in (("models", "model"), ("rows", ["model", "row"]), ("columns", "column")):
            for key, of_key in shown.groupby(keys, sort=False)["figure"]:
                these = set(of_key)
                if these <= left and (len(these) > 1 or name == "models"):
                    places[name][key].append(str(number))
                    left -= these
        for figure in left:
            places["cells"][figure].append(str(number))
    found = {name: {key: tuple(numbers) for key, numbers in place.items()} for name, place in places.items()}
    return Marks(texts, tuple(everywhere), **found)
