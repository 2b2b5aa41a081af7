"""The layout of an experiment's tables, made from its cells: what every format (terminal, Markdown, LaTeX) draws."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.papers.columns import AVERAGE, Column
from kvbench.report.tables.paper.cells import FULL
from kvbench.report.tables.paper.errata_marks import ErrataMarks
from kvbench.report.tables.run_table import MISSED_MARK
from kvbench.report.tables.text_table import MISSING, number

LOST = "lost"  # printed by the paper, but illegible in the text at hand
NOT_SIGNIFICANT, FLOORED_MARK = "†", "‡"


@dataclass(frozen=True)
class Cell:
    """A text followed by marks; `more` stands below it, or beside it in parentheses."""

    text: str = MISSING
    marks: tuple[str, ...] = ()
    more: str = ""
    best: bool = False
    second: bool = False


@dataclass(frozen=True)
class Group:
    """The rows of one model, in sections with a line between them."""

    heading: Cell
    sections: list[list[list[Cell]]]


@dataclass(frozen=True)
class PaperTable:
    """One table; its first `labels` columns name the row."""

    title: Cell
    header: list[Cell]
    groups: list[Group]
    labels: int

    def rows(self) -> Iterator[list[Cell]]:
        for group in self.groups:
            for section in group.sections:
                yield from section


def tables(
    cells: pd.DataFrame, columns: Sequence[Column], marks: ErrataMarks, ratios: Sequence[str]
) -> list[PaperTable]:
    """Up to three tables of an item, without those that would repeat another; `ratios` are columns of the first two.

    The main column (the average, or the only one) beside its published value and FullKV's; all columns; the
    published values of all columns, with our difference to each.
    """
    cells = _emphasised(cells)
    main = columns[0] if len(columns) == 1 else next((column for column in columns if column.name == AVERAGE), None)
    shown_tables = []
    if main is not None:
        shown_tables.append(_main_column(cells, main, marks, ratios))
    if len(columns) > 1:
        shown_tables.append(_all_columns(cells, columns, ratios))
        if cells["value_index"].notna().any():
            shown_tables.append(_published(cells, columns, marks))
    return shown_tables


def _emphasised(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with flags for the `best` and the `second` value of each column in a block of several settings.

    Several equal values are all best, and then there is no second. Floored settings kept more than was requested, and
    are not ranked.
    """
    cells = cells.assign(best=False, second=False)
    apart = cells[(cells["block"] != FULL) & ~cells["floored"]]
    for _, column in apart.groupby(["model", "length", "block", "column"], dropna=False, sort=False):
        values = column["ours"].dropna()
        first, *lower = sorted(set(values), reverse=True) or [None]
        if lower:
            best = values[values == first].index
            cells.loc[best, "best"] = True
            if len(best) == 1 and len(values) > 2:
                cells.loc[values[values == lower[0]].index, "second"] = True
    return cells


def _main_column(cells: pd.DataFrame, main: Column, marks: ErrataMarks, ratios: Sequence[str]) -> PaperTable:
    """One column beside its published values, with the differences and intervals."""
    cells = cells[cells["column"] == main.name]
    printed, compared = (bool(cells[name].notna().any()) for name in ("value_index", "versus_full"))
    labels = _labels(cells)
    header = [*labels, *ratios, main.short]
    header += ["published", "difference"] * printed + ["vs FullKV", "95 % interval"] * compared + ["samples"]

    def row(of_row: pd.DataFrame) -> list[Cell]:
        cell = of_row.iloc[0]
        drawn = [*_label(cell, labels), *_ratios(cell, ratios), _score(cell)]
        if printed:
            drawn += [_printed(cell, marks.of_value(cell)), Cell(_signed(cell["difference"], cell))]
        if compared:
            drawn += [Cell(_signed(cell["versus_full"], cell)), Cell(_interval(cell))]
        return [*drawn, Cell(f"{cell['samples']:,}" if cell["samples"] else MISSING)]

    title = main.short[0].upper() + main.short[1:] + ", beside the published value" * printed
    heading = Cell(title, marks.title)
    return PaperTable(heading, [Cell(name) for name in header], _groups(cells, row, marks.models), len(labels))


def _all_columns(cells: pd.DataFrame, columns: Sequence[Column], ratios: Sequence[str]) -> PaperTable:
    """Every column of every row."""
    labels, names = _labels(cells), [column.name for column in columns]
    header = [Cell(name) for name in (*labels, *ratios, *(column.short for column in columns))]

    def row(of_row: pd.DataFrame) -> list[Cell]:
        cell = of_row.iloc[0]
        by_column = of_row.set_index("column").loc[names]
        return [*_label(cell, labels), *_ratios(cell, ratios), *(_score(value) for _, value in by_column.iterrows())]

    return PaperTable(Cell("All columns"), header, _groups(cells, row, {}), len(labels))


def _published(cells: pd.DataFrame, columns: Sequence[Column], marks: ErrataMarks) -> PaperTable:
    """The published values of all columns, and our difference to each."""
    columns = [c for c in columns if cells.loc[cells["column"] == c.name, "value_index"].notna().any()]
    cells = cells[cells.groupby(["model", "row"], sort=False)["value_index"].transform(lambda f: f.notna().any())]
    labels, names = _labels(cells), [column.name for column in columns]
    header = [Cell(name) for name in labels]
    header += [Cell(column.short, marks.columns.get(column.name, ())) for column in columns]

    def row(of_row: pd.DataFrame) -> list[Cell]:
        cell = of_row.iloc[0]
        first, *others = _label(cell, labels)
        first = replace(first, marks=marks.rows.get((cell["model"], cell["row"]), ()))
        by_column = of_row.set_index("column", drop=False).loc[names]
        values = [
            _with_difference(_printed(value, marks.values.get(value["value_index"], ())), value)
            for _, value in by_column.iterrows()
        ]
        return [first, *others, *values]

    title = Cell("Published, and ours minus published", marks.title)
    return PaperTable(title, header, _groups(cells, row, marks.models), len(labels))


def _signed(value: float, cell: pd.Series) -> str:
    """A difference with its sign and as many digits as its cell; zero has no sign."""
    if pd.isna(value):
        return MISSING
    text = f"{value:+.{_digits(cell)}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def _groups(
    cells: pd.DataFrame, row: Callable[[pd.DataFrame], list[Cell]], marks: Mapping[str, tuple[str, ...]]
) -> list[Group]:
    groups = []
    for model, of_model in cells.groupby("model", sort=False):
        sections = [
            [row(of_row) for _, of_row in of_block.groupby("row", sort=False)]
            for _, of_block in of_model.groupby(["length", "block"], dropna=False, sort=False)
        ]
        if all(len(section) == 1 for section in sections):  # one row each: no lines between them
            sections = [[row for section in sections for row in section]]
        groups.append(Group(Cell(model, marks.get(model, ())), sections))
    return groups


def _labels(cells: pd.DataFrame) -> list[str]:
    requested, length = (bool(cells[names].notna().any(axis=None)) for names in (["ratio", "budget"], ["length"]))
    return ["method", *["requested"] * requested, *["context"] * length]


def _label(cell: pd.Series, labels: Sequence[str]) -> list[Cell]:
    """The cells of the columns that name a row."""
    requested = MISSING
    if pd.notna(cell["budget"]) or pd.notna(cell["ratio"]):
        requested = f"{cell['ratio']:g}" if pd.isna(cell["budget"]) else f"{cell['budget']:.0f}"
    marks = (FLOORED_MARK,) * bool(cell["floored"]) + (MISSED_MARK,) * bool(cell["target_missed"])
    drawn = {
        "method": Cell(titled(cell["method"])),
        "requested": Cell(requested, marks),
        "context": Cell(MISSING if pd.isna(cell["length"]) else f"{cell['length']:.0f}"),
    }
    return [drawn[name] for name in labels]


def _ratios(cell: pd.Series, ratios: Sequence[str]) -> list[Cell]:
    shown = [cell["served_bytes" if name == "r_bytes" else name] for name in ratios]
    return [Cell(number(value)) for value in shown]


def _interval(cell: pd.Series) -> str:
    return MISSING if pd.isna(cell["low"]) else f"{_signed(cell['low'], cell)} to {_signed(cell['high'], cell)}"


def _score(cell: pd.Series) -> Cell:
    if pd.isna(cell["ours"]):
        return Cell()
    unsure = pd.notna(cell["versus_full"]) and not (cell["low"] > 0 or cell["high"] < 0)
    marks = (NOT_SIGNIFICANT,) if unsure else ()
    return Cell(f"{cell['ours']:.{_digits(cell)}f}", marks, best=cell["best"], second=cell["second"])


def _printed(cell: pd.Series, marks: tuple[str, ...]) -> Cell:
    """The published value of a cell."""
    if not cell["printed"]:
        return Cell(MISSING if pd.isna(cell["value_index"]) else LOST, marks)
    return Cell(cell["printed"], marks)


def _with_difference(printed: Cell, cell: pd.Series) -> Cell:
    return printed if pd.isna(cell["difference"]) else replace(printed, more=_signed(cell["difference"], cell))


def _digits(cell: pd.Series) -> int:
    return 3 if cell["unit"] == "fraction" else 2
