"""An experiment's tables as LaTeX, for documents with the packages booktabs and graphicx."""

from collections.abc import Iterator

from kvbench.report.tables.latex_parts import NEEDS, floats, parts
from kvbench.report.tables.paper.document import Document
from kvbench.report.tables.paper.layout import Cell, PaperTable

_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "–": "--",
    "—": "---",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "δ": r"$\delta$",
    "θ": r"$\theta$",
    "…": r"\ldots{}",
    "’": "'",
    "[": "{[}",  # after a row's end, an optional argument
    "]": "{]}",
    "*": "{*}",
}


def latex(document: Document) -> str:
    """A float for each table, several for a long one, and the notes as text after the last one."""
    lines = [NEEDS, ""]
    for i, table in enumerate(document.tables):
        caption = " ".join(map(escape, [f"{document.title}.", table.title.text + "."])) + _marks(table.title.marks)
        if i == 0:
            caption += " " + " ".join(map(escape, document.above))
        lines += _floats(table, caption)
    lines += ["{\\footnotesize\\parindent0pt"]
    lines += [f"{escape(line)}\\par" for line in document.legend]
    lines += [f"{_marks((str(i),))} {escape(text)}\\par" for i, text in enumerate(document.footnotes, 1)]
    if document.chosen:
        lines += ["Our choices, where the paper leaves something open or contradicts itself:\\par"]
        lines += [f"-- {escape(line)}\\par" for line in document.chosen]
    lines += [f"{escape(line)}\\par" for line in document.runs]
    return "\n".join([*lines, "}"]) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands; control characters become spaces."""
    return "".join(_SPECIAL.get(c, c) if c.isprintable() else " " for c in text)


def _floats(table: PaperTable, caption: str) -> list[str]:
    """One float, or several of a table that is longer than a page."""
    return floats(
        parts(_blocks(table), caption),
        "table*",
        f"\\caption{{{caption}}}",
        "l" * table.labels + "r" * (len(table.header) - table.labels),
        _row(table.header),
        spacing="\\setlength{\\belowcaptionskip}{6pt}",
    )


def _blocks(table: PaperTable) -> Iterator[tuple[str, list[str]]]:
    """Each section below its group's heading."""
    for group in table.groups:
        heading = f"\\textit{{{escape(group.heading.text)}}}{_marks(group.heading.marks)}"
        for section in group.sections:
            line = f"\\multicolumn{{{len(table.header)}}}{{l}}{{{heading}}} \\\\\n\\midrule"
            yield line, [_row(row) for row in section]


def _row(cells: list[Cell]) -> str:
    """A line of cells, and a smaller one below it for cells with `more`."""
    lines = [list(map(_cell, cells))]
    if any(cell.more for cell in cells):
        lines.append([f"{{\\scriptsize {escape(cell.more)}}}" if cell.more else "" for cell in cells])
    return "\n".join(" & ".join(line) + r" \\" for line in lines)


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    text = f"\\textbf{{{text}}}" if cell.best else f"\\underline{{{text}}}" if cell.second else text
    return text + _marks(cell.marks)


def _marks(marks: tuple[str, ...]) -> str:
    numbers = ",".join(mark for mark in marks if mark.isdigit())
    symbols = "".join(escape(mark) for mark in marks if not mark.isdigit())
    return symbols + (f"$^{{{numbers}}}$" if numbers else "")
