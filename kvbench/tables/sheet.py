"""Tables to look at, made from the cells of `compare`; what every format (terminal, Markdown, LaTeX) draws."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from kvbench.papers.columns import AVERAGE, Column
from kvbench.tables.blocks import FULL
from kvbench.tables.footnotes import Marks

NOTHING, LOST = "–", "lost"
NOT_SIGNIFICANT, FLOORED = "†", "‡"


@dataclass(frozen=True)
class Cell:
    """A text with marks behind it; `more` stands below it, or beside it in brackets."""

    text: str = NOTHING
    marks: tuple[str, ...] = ()
    more: str = ""
    best: bool = False
    second: bool = False


@dataclass(frozen=True)
class Group:
    """The rows of one model, in sections that a line parts."""

    heading: Cell
    sections: list[list[list[Cell]]]


@dataclass(frozen=True)
class Sheet:
    """One table; its first `labels` columns name the row."""

    title: Cell
    header: list[Cell]
    groups: list[Group]
    labels: int

    def rows(self) -> Iterator[list[Cell]]:
        for group in self.groups:
            for section in group.sections:
                yield from section


def sheets(cells: pd.DataFrame, columns: Sequence[Column], marks: Marks) -> list[Sheet]:
    """The tables of an item, of those of these three that say something of their own.

    The main column (the average, or the only one) beside the published figure and FullKV's; all columns; the
    published figures of all columns, with ours minus each.
    """
    cells = emphasised(cells)
    main = columns[0] if len(columns) == 1 else next((column for column in columns if column.name == AVERAGE), None)
    made = []
    if main is not None:
        made.append(summary(cells, main, marks))
    if len(columns) > 1:
        made.append(scores(cells, columns))
        if cells["figure"].notna().any():
            made.append(published(cells, columns, marks))
    return made


def emphasised(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with `best` and `second` of each column among the settings of a block, where there is a choice.

    Equal values are all best, and then there is no second.
    """
    cells = cells.assign(best=False, second=False)
    apart = cells[cells["block"] != FULL]
    for _, column in apart.groupby(["model", "length", "block", "column"], dropna=False, sort=False):
        values = column["ours"].dropna()
        first, *others = sorted(set(values), reverse=True) or [None]
        if others:
            best = values[values == first].index
            cells.loc[best, "best"] = True
            if len(best) == 1 and len(values) > 2:
                cells.loc[values[values == others[0]].index, "second"] = True
    return cells


def summary(cells: pd.DataFrame, main: Column, marks: Marks) -> Sheet:
    """One column with everything that is known of it."""
    cells = cells[cells["column"] == main.name]
    printed, compared = (bool(cells[name].notna().any()) for name in ("figure", "versus_full"))
    labels = _labels(cells)
    header = [*labels, "r", "r_bytes", main.short]
    header += ["published", "difference"] * printed + ["vs FullKV", "95 % interval"] * compared + ["samples"]

    def row(of_row: pd.DataFrame) -> list[Cell]:
        cell = of_row.iloc[0]
        drawn = [*_label(cell, labels), *_ratios(cell), _score(cell)]
        if printed:
            drawn += [_printed(cell, marks.of_figure(cell)), Cell(signed(cell["difference"], cell))]
        if compared:
            drawn += [Cell(signed(cell["versus_full"], cell)), Cell(_interval(cell))]
        return [*drawn, Cell(f"{cell['samples']:,}" if cell["samples"] else NOTHING)]

    title = main.short[0].upper() + main.short[1:] + ", beside the published figure" * printed
    heading = Cell(title, marks.everywhere)
    return Sheet(heading, [Cell(name) for name in header], _groups(cells, row, marks.models), len(labels))


def scores(cells: pd.DataFrame, columns: Sequence[Column]) -> Sheet:
    """Every column of every row."""
    labels, names = _labels(cells), [column.name for column in columns]
    header = [Cell(name) for name in (*labels, "r", "r_bytes", *(column.short for column in columns))]

    def row(of_row: pd.DataFrame) -> list[Cell]:
        cell = of_row.iloc[0]
        by_column = of_row.set_index("column").loc[names]
        return [*_label(cell, labels), *_ratios(cell), *(_score(one) for _, one in by_column.iterrows())]

    return Sheet(Cell("All columns"), header, _groups(cells, row, {}), len(labels))


def published(cells: pd.DataFrame, columns: Sequence[Column], marks: Marks) -> Sheet:
    """The printed figures, and ours minus each."""
    columns = [c for c in columns if cells.loc[cells["column"] == c.name, "figure"].notna().any()]
    cells = cells[cells.groupby(["model", "row"], sort=False)["figure"].transform(lambda f: f.notna().any())]
    labels, names = _labels(cells), [column.name for column in columns]
    header = [Cell(name) for name in labels]
    header += [Cell(column.short, marks.columns.get(column.name, ())) for column in columns]

    def row(of_row: pd.DataFrame) -> list[Cell]:
        cell = of_row.iloc[0]
        first, *others = _label(cell, labels)
        first = replace(first, marks=marks.rows.get((cell["model"], cell["row"]), ()))
        by_column = of_row.set_index("column", drop=False).loc[names]
        figures = [_printed(one, marks.cells.get(one["figure"], ()), True) for _, one in by_column.iterrows()]
        return [first, *others, *figures]

    title = Cell("Published, and ours minus published", marks.everywhere)
    return Sheet(title, header, _groups(cells, row, marks.models), len(labels))


def signed(value: float, cell: pd.Series) -> str:
    """A difference in the digits of its cell; zero has no sign."""
    if pd.isna(value):
        return NOTHING
    text = f"{value:+.{_digits(cell)}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def _groups(cells: pd.DataFrame, row: Callable[[pd.DataFrame], list[Cell]], marks: dict) -> list[Group]:
    groups = []
    for model, of_model in cells.groupby("model", sort=False):
        sections = [
            [row(of_row) for _, of_row in of_block.groupby("row", sort=False)]
            for _, of_block in of_model.groupby(["length", "block"], dropna=False, sort=False)
        ]
        if all(len(section) == 1 for section in sections):  # nothing to hold together, so nothing to part
            sections = [[row for section in sections for row in section]]
        groups.append(Group(Cell(model, marks.get(model, ())), sections))
    return groups


def _labels(cells: pd.DataFrame) -> list[str]:
    asked, length = (bool(cells[names].notna().any(axis=None)) for names in (["ratio", "budget"], ["length"]))
    return ["method", *["asked"] * asked, *["context"] * length]


def _label(cell: pd.Series, labels: Sequence[str]) -> list[Cell]:
    """The columns that name a row."""
    asked = NOTHING
    if pd.notna(cell["budget"]) or pd.notna(cell["ratio"]):
        asked = f"{cell['ratio']:g}" if pd.isna(cell["budget"]) else f"{cell['budget']:.0f}"
    drawn = {
        "method": Cell(cell["method"]),
        "asked": Cell(asked, (FLOORED,) if cell["floored"] else ()),
        "context": Cell(NOTHING if pd.isna(cell["length"]) else f"{cell['length']:.0f}"),
    }
    return [drawn[name] for name in labels]


def _ratios(cell: pd.Series) -> list[Cell]:
    return [Cell(NOTHING if pd.isna(cell[name]) else f"{cell[name]:.3f}") for name in ("r", "r_bytes")]


def _interval(cell: pd.Series) -> str:
    return NOTHING if pd.isna(cell["low"]) else f"{signed(cell['low'], cell)} to {signed(cell['high'], cell)}"


def _score(cell: pd.Series) -> Cell:
    if pd.isna(cell["ours"]):
        return Cell()
    unsure = pd.notna(cell["versus_full"]) and not (cell["low"] > 0 or cell["high"] < 0)
    marks = (NOT_SIGNIFICANT,) if unsure else ()
    return Cell(f"{cell['ours']:.{_digits(cell)}f}", marks, best=cell["best"], second=cell["second"])


def _printed(cell: pd.Series, marks: tuple[str, ...], difference: bool = False) -> Cell:
    if not cell["printed"]:
        return Cell(NOTHING if pd.isna(cell["figure"]) else LOST, marks)
    more = signed(cell["difference"], cell) if difference and pd.notna(cell["difference"]) else ""
    return Cell(cell["printed"], marks, more)


def _digits(cell: pd.Series) -> int:
    return 3 if cell["unit"] == "fraction" else 2
