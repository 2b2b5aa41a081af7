"""A table of text, for the terminal and as Markdown; and columns that fit a terminal."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from kvbench.utils.console import out
from kvbench.utils.csv_files import write_csv
from kvbench.utils.files import write_atomically

MISSING = "–"
GAP = 2  # characters between columns
NARROWEST = 12  # characters of a first column that is folded within words as a last resort
# What Markdown would take for emphasis, code, a tag, an entity, a link or an escape; a star at a text's end is none.
MARKUP = re.compile(
    r"`|\*(?!$)|(?<!\w)_(?=\w)|~(?=~)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\[(?=[^\]]*\]\()|\\(?=[!-/:-@\[-`{-~])"
)
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class TextTable:
    """Cells as text. The first column holds names, all others numbers; `notes` stand below.

    sections  empty, or one name for each row: a line separates rows of different sections
    lead      number of columns that identify a row: they begin each part of a table that is wider than the terminal
    repeats   a column -> others with the same cells, which a narrow terminal leaves out, the last one first
    """

    header: list[str]
    rows: list[list[str]]
    title: str = ""
    notes: Sequence[str] = ()
    sections: Sequence[str] = field(default=())
    lead: int = 1
    repeats: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def rich(self) -> Group:
        """The table at the terminal's width: in several parts below one another if it is too wide."""
        table = self._narrowed(out.width)
        *parts, last = table._parts(out.width)
        tables = [*parts, replace(last, notes=table.notes)]
        tables[0] = replace(tables[0], title=table.title)
        return Group(*[text for part in tables for text in ("", part._whole())][1:])

    def _narrowed(self, terminal: int) -> "TextTable":
        """The table without columns that repeat another, as far as the terminal's width needs it; a note names them."""
        table = self
        for name, columns in self.repeats.items():
            left_out: list[str] = []
            for column in reversed(columns):
                if _across(_unbroken(table.header, table.rows)) > terminal and self._same(column, name):
                    left_out.append(column)
                    table = table._only([i for i, title in enumerate(table.header) if title != column])
            if left_out:
                note = f"not shown for want of room: {', '.join(left_out)}, in every row the same as {name}"
                table = replace(table, notes=[*table.notes, note])
        return table

    def _same(self, *names: str) -> bool:
        columns = [[row[self.header.index(name)] for row in self.rows] for name in names if name in self.header]
        return len(columns) == len(names) and all(column == columns[0] for column in columns)

    def _only(self, columns: Sequence[int]) -> "TextTable":
        return replace(
            self, header=[self.header[i] for i in columns], rows=[[row[i] for i in columns] for row in self.rows]
        )

    def _parts(self, terminal: int) -> list["TextTable"]:
        """Parts that fit the terminal, without title and notes."""
        bare = replace(self, title="", notes=())
        groups = column_groups(_unbroken(self.header, self.rows), self.lead, terminal)
        return [bare._only(group) for group in groups]

    def _whole(self) -> Table:
        width = out.width
        table = plain_table(
            title=Text(self.title) if self.title else None,
            min_width=min(len(self.title), width),
            caption=Text("\n".join(self.notes)) if self.notes else None,
            caption_justify="left",
        )
        for i, (name, column) in enumerate(zip(self.header, widths(self.header, self.rows, width), strict=True)):
            table.add_column(Text(name), justify="left" if i == 0 else "right", width=column, overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))
        for line, section, following in zip(table.rows, self.sections, [*self.sections[1:], None], strict=False):
            line.end_section = section != following
        return table

    def markdown(self) -> str:
        header, *rows = [[as_text(cell) for cell in row] for row in (self.header, *self.rows)]
        lines = [*([as_text(self.title), ""] if self.title else []), *markdown_rows(header, rows)]
        return "\n".join([*lines, *(f"\n{as_text(note)}" for note in self.notes)]) + "\n"


def plain_table(**options: Any) -> Table:
    """An empty table as kvbench prints all of them: a line below the header, none around."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), **options)


def as_text(text: str) -> str:
    """A text that Markdown shows as it is, such as a task's name or a note that begins with its mark."""
    return MARKUP.sub(r"\\\g<0>", text)


def as_shown(markdown: str) -> str:
    """The text that `as_text`, or a cell of `markdown_rows`, shows."""
    return ESCAPED.sub(r"\1", markdown)


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table: text in the first column, numbers in the others."""
    lines = [header, [":--"] + ["--:"] * (len(header) - 1), *rows]
    return ["| " + " | ".join(map(markdown_cell, row)) + " |" for row in lines]


def markdown_cell(text: str) -> str:
    """A text, Markdown or made so by `as_text`, in one line of a table."""
    return " ".join(text.splitlines()).replace("|", r"\|")


def widths(header: Sequence[str], rows: Sequence[Sequence[str]], terminal: int) -> list[int]:
    """The width of each column in characters, so that all fit the terminal where they can.

    Headers are folded between words first, then names; a number never.
    """
    contents, least = _contents(header, rows), _unbroken(header, rows)
    columns = [max(len(name), content) for name, content in zip(header, contents, strict=True)]
    for limit in ([max(contents[0], least[0]), *least[1:]], least, [min(least[0], NARROWEST), *least[1:]]):
        while _across(columns) > terminal and (wide := [i for i, width in enumerate(columns) if width > limit[i]]):
            columns[max(wide, key=columns.__getitem__)] -= 1
    return columns


def column_groups(columns: Sequence[int], lead: int, terminal: int) -> list[list[int]]:
    """The fewest groups of columns that fit the terminal, of about equal size; each begins with the first `lead`.

    `columns` are the widths in characters. A column that fits nowhere is alone in its group.
    """
    leading, following = list(range(lead)), range(lead, len(columns))
    for count in range(1, len(following) + 1):
        size = -(-len(following) // count)
        groups = [[*leading, *following[i : i + size]] for i in range(0, len(following), size)]
        if all(_across([columns[i] for i in group]) <= terminal for group in groups):
            return groups
    return [[*leading, i] for i in following] or [leading]


def _contents(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max((len(row[i]) for row in rows), default=1) for i in range(len(header))]


def _unbroken(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The widths that break neither a number nor a word of a header or a name."""
    names = max((len(word) for row in rows for word in row[0].split()), default=1)
    words = [max(map(len, name.split()), default=1) for name in header]
    return [max(pair) for pair in zip(words, [names, *_contents(header, rows)[1:]], strict=True)]


def _across(columns: Sequence[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def write_table(frame: pd.DataFrame, table: TextTable, folder: Path, name: str = "table") -> list[Path]:
    """NAME.csv with every digit, NAME.md to read; the files."""
    csv, markdown = folder / f"{name}.csv", folder / f"{name}.md"
    write_csv(frame, csv)
    write_atomically(markdown, table.markdown())
    return [csv, markdown]


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits; MISSING for nan."""
    return MISSING if pd.isna(value) else f"{value:.{digits}f}"
