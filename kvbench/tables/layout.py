"""What tables share: columns that fit a terminal, and Markdown."""

from collections.abc import Sequence

import pandas as pd
from rich import box, get_console
from rich.table import Table


def _number(value: float, digits: int = 3) -> str:
    return "–" if pd.isna(value) else f"{value:.{digits}f}"


GAP = 2  # between columns

NARROWEST = 12  # column of names


def rich_rows(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, below: Sequence[str]) -> Table:
    """A table for the terminal: text in the first column, numbers in the others, notes below."""
    terminal = get_console().width
    table = Table(
        title=title or None,
        min_width=min(len(title), terminal),
        caption="\n".join(below) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for i, (name, width) in enumerate(zip(header, widths(header, rows, terminal), strict=True)):
        table.add_column(name, justify="left" if i == 0 else "right", width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def widths(header: Sequence[str], rows: Sequence[Sequence[str]], terminal: int) -> list[int]:
    """Of the columns. On a narrow terminal headers are folded, then their words, then names; numbers never."""
    contents = _contents(header, rows)
    found = [max(len(name), content) for name, content in zip(header, contents, strict=True)]
    for least in (
        [contents[0], *_unbroken(header, rows)[1:]],
        contents,
        [min(contents[0], NARROWEST), *contents[1:]],
    ):
        while _across(found) > terminal and (wide := [i for i, width in enumerate(found) if width > least[i]]):
            found[max(wide, key=found.__getitem__)] -= 1
    return found


def blocks(header: Sequence[str], rows: Sequence[Sequence[str]], lead: int, terminal: int) -> list[list[int]]:
    """Groups of columns that fit with no word broken, each behind the first `lead` columns, which all groups have."""
    room = _unbroken(header, rows)
    found = [list(range(lead))]
    for i in range(lead, len(header)):
        if len(found[-1]) > lead and _across([room[j] for j in [*found[-1], i]]) > terminal:
            found.append(list(range(lead)))
        found[-1].append(i)
    return found


def _contents(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max((len(row[i]) for row in rows), default=1) for i in range(len(header))]


def _unbroken(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The widths that break neither a number nor a word of a header."""
    words = [max(map(len, name.split()), default=1) for name in header]
    return [max(pair) for pair in zip(words, _contents(header, rows), strict=True)]


def _across(columns: Sequence[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def markdown_rows(header: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table: text in the first column, numbers in the others."""
    return ["| " + " | ".join(row) + " |" for row in [header, [":--"] + ["--:"] * (len(header) - 1), *rows]]
