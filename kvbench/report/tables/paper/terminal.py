"""An experiment's tables for the terminal; one that is too wide continues below, with its rows named again."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvbench.report.tables.paper.document import Document
from kvbench.report.tables.paper.layout import Cell, PaperTable
from kvbench.report.tables.paper.markdown import raised
from kvbench.report.tables.text_table import column_groups, plain_table


def show(document: Document, console: Console) -> None:
    """Print the tables with the text around them."""
    console.print(Text(document.title, style="bold"), highlight=False)
    for line in document.above:
        console.print(Text(line))
    for table in document.tables:
        console.print()
        console.print(Text(table.title.text + raised(table.title.marks), style="bold"))
        for columns in column_groups(_widths(table), table.labels, console.width):
            console.print(Padding(_rich(table, columns), (0, 0, 1, 0)))
    for line in document.legend:
        console.print(_item("", line))
    for i, text in enumerate(document.footnotes, 1):
        console.print(_item(raised((str(i),)), text))
    if document.chosen:
        console.print(Text("Our choices, where the paper leaves something open or contradicts itself:"))
    for line in document.chosen:
        console.print(_item("-", line))
    for line in document.runs:
        console.print(_item("", line))


def _widths(table: PaperTable) -> list[int]:
    """The width of each column in characters."""
    rows = [table.header, *table.rows()]
    return [max(_cell_width(row[i]) for row in rows) for i in range(len(table.header))]


def _rich(table: PaperTable, columns: Sequence[int]) -> Table:
    """Some columns of a table."""
    grid = plain_table()
    for i in columns:
        grid.add_column(_text(table.header[i]), justify="left" if i < table.labels else "right", no_wrap=True)
    for group in table.groups:
        grid.add_row(Text(group.heading.text + raised(group.heading.marks), style="italic"), end_section=False)
        for section in group.sections:
            for i, row in enumerate(section):
                grid.add_row(*(_text(row[column]) for column in columns), end_section=i == len(section) - 1)
    return grid


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
