"""An experiment's tables as Markdown."""

from kvbench.report.tables.paper.document import Document
from kvbench.report.tables.paper.layout import Cell, PaperTable
from kvbench.report.tables.text_table import markdown_rows

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def markdown(document: Document) -> str:
    lines = [f"# {document.title}", "", *_paragraphs(document.above)]
    for table in document.tables:
        lines += [f"## {_text(table.title)}", "", *_table(table)]
    lines += _list(document.legend)
    if document.footnotes:
        lines += ["Errata of the published values:", ""]
        lines += [f"{raised((str(i),))} {text}  " for i, text in enumerate(document.footnotes, 1)] + [""]
    if document.chosen:
        lines += [
            "Our choices, where the paper leaves something open or contradicts itself:",
            "",
            *_list(document.chosen),
        ]
    lines += ["Made from:", "", *_list(document.runs)]
    return "\n".join(lines).rstrip() + "\n"


def raised(marks: tuple[str, ...]) -> str:
    """Numbers as superscripts, all other marks as they are."""
    numbers = ",".join(mark.translate(_RAISED) for mark in marks if mark.isdigit())
    return "".join(mark for mark in marks if not mark.isdigit()) + numbers


def _table(table: PaperTable) -> list[str]:
    lines = []
    header = [_text(cell) for cell in table.header]
    for group in table.groups:
        rows: list[list[str]] = []
        for section in group.sections:
            rows += [[""] * len(header)] * bool(rows) + [[_text(cell) for cell in row] for row in section]
        lines += [f"**{_text(group.heading)}**", "", *markdown_rows(header, rows), ""]
    return lines


def _text(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else f"<u>{cell.text}</u>" if cell.second else cell.text
    return text + raised(cell.marks) + (f" ({cell.more})" if cell.more else "")


def _paragraphs(lines: list[str]) -> list[str]:
    return [part for line in lines for part in (line, "")]


def _list(lines: list[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""]
