"""An item's table for the terminal; a table too wide for it goes on below, with its rows named again."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvbench.tables.markdown import raised
from kvbench.tables.paper import Report
from kvbench.tables.sheet import Cell, Group, Sheet

GAP = 2  # between columns


def show(report: Report, console: Console) -> None:
    console.print(Text(report.title, style="bold"), highlight=False)
    for line in report.above:
        console.print(Text(line))
    for sheet in report.sheets:
        console.print()
        console.print(Text(sheet.title.text + raised(sheet.title.marks), style="bold"))
        for part in panels(sheet, console.width):
            console.print(Padding(_table(part), (0, 0, 1, 0)))
    for line in report.legend:
        console.print(_item("", line))
    for i, text in enumerate(report.footnotes, 1):
        console.print(_item(raised((str(i),)), text))
    if report.chosen:
        console.print(Text("Chosen, where the paper leaves it open or contradicts itself:"))
    for line in report.chosen:
        console.print(_item("-", line))
    for line in report.runs:
        console.print(_item("", line))


def panels(sheet: Sheet, width: int) -> list[Sheet]:
    """The sheet in as few parts as fit `width`, all with the columns that name the rows, of about as many others."""
    rows = [sheet.header, *sheet.rows()]
    widths = [max(_cell_width(row[i]) for row in rows) + GAP for i in range(len(sheet.header))]
    room = width + GAP - sum(widths[: sheet.labels])
    others = range(sheet.labels, len(widths))
    for count in range(1, len(others) + 1):
        size = -(-len(others) // count)
        parts = [others[i : i + size] for i in range(0, len(others), size)]
        if all(sum(widths[i] for i in part) <= room for part in parts):
            break
    return [_only(sheet, [*range(sheet.labels), *part]) for part in parts]


def _only(sheet: Sheet, columns: Sequence[int]) -> Sheet:
    def pick(row: list[Cell]) -> list[Cell]:
        return [row[i] for i in columns]

    groups = [
        Group(group.heading, [[pick(row) for row in section] for section in group.sections]) for group in sheet.groups
    ]
    return Sheet(sheet.title, pick(sheet.header), groups, sheet.labels)


def _table(sheet: Sheet) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i, cell in enumerate(sheet.header):
        table.add_column(_text(cell), justify="left" if i < sheet.labels else "right", no_wrap=True)
    for group in sheet.groups:
        table.add_row(Text(group.heading.text + raised(group.heading.marks), style="italic"), end_section=False)
        for section in group.sections:
            for i, row in enumerate(section):
                table.add_row(*map(_text, row), end_section=i == len(section) - 1)
    return table


def _text(cell: Cell) -> Text:
    text = Text(cell.text, style="bold" if cell.best else "underline" if cell.second else "")
    text = Text.assemble(text, raised(cell.marks))
    return Text.assemble(text, "\n", (cell.more, "dim")) if cell.more else text


def _cell_width(cell: Cell) -> int:
    return max(len(cell.text + raised(cell.marks)), len(cell.more))


def _item(mark: str, text: str) -> Table:
    """A mark, and a text that wraps beside it."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=max(2, len(mark)))
    grid.add_column()
    grid.add_row(Text(mark), Text(text, style="dim"))
    return grid
