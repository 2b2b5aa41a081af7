"""A run's table as LaTeX, for documents with the packages booktabs and graphicx."""

import re
from itertools import groupby

from kvbench.report.tables.latex_parts import NEEDS, floats, parts
from kvbench.report.tables.paper.latex import escape
from kvbench.report.tables.text_table import TextTable


def text_latex(table: TextTable) -> str:
    """A float with the table, several for a long one; its title is the caption, its notes stand below."""
    alignment = "l" + "r" * (len(table.header) - 1)
    sections = table.sections or [""] * len(table.rows)
    blocks = [
        ("", [_row(row) for _, row in rows])
        for _, rows in groupby(zip(sections, table.rows, strict=True), key=lambda pair: pair[0])
    ]
    made = parts(blocks, " ".join([table.title, *table.notes])) or [["\\midrule"]]
    caption = f"\\caption{{{escape(table.title)}}}"
    notes = [f"\n{{\\footnotesize {escape(note)}\\par}}" for note in table.notes]
    return "\n".join([NEEDS, *floats(made, "table", caption, alignment, _row(table.header), below=notes)])


def _row(cells: list[str]) -> str:
    name, *numbers = cells
    return " & ".join(map(escape, [name, *map(with_minus, numbers)])) + " \\\\"


def with_minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)
