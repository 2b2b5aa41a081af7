"""An item's table as Markdown."""

from kvbench.tables.layout import markdown_rows
from kvbench.tables.paper import Report
from kvbench.tables.sheet import Cell, Sheet

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def markdown(report: Report) -> str:
    lines = [f"# {report.title}", "", *_paragraphs(report.above)]
    for sheet in report.sheets:
        lines += [f"## {_text(sheet.title)}", "", *_sheet(sheet)]
    lines += _list(report.legend)
    if report.footnotes:
        lines += ["Errata of the published figures:", ""]
        lines += [f"{raised((str(i),))} {text}  " for i, text in enumerate(report.footnotes, 1)] + [""]
    if report.chosen:
        lines += ["Chosen, where the paper leaves it open or contradicts itself:", "", *_list(report.chosen)]
    lines += ["Made from:", "", *_list(report.runs)]
    return "\n".join(lines).rstrip() + "\n"


def raised(marks: tuple[str, ...]) -> str:
    """Numbers as superscripts, all other marks as they are."""
    numbers = ",".join(mark.translate(_RAISED) for mark in marks if mark.isdigit())
    return "".join(mark for mark in marks if not mark.isdigit()) + numbers


def _sheet(sheet: Sheet) -> list[str]:
    lines = []
    header = [_text(cell) for cell in sheet.header]
    for group in sheet.groups:
        rows: list[list[str]] = []
        for section in group.sections:
            rows += [[""] * len(header)] * bool(rows) + [[_text(cell) for cell in row] for row in section]
        lines += [f"**{_text(group.heading)}**", "", *markdown_rows(header, rows), ""]
    return lines


def _text(cell: Cell) -> str:
    text = cell.text.replace("|", r"\|")
    text = f"**{text}**" if cell.best else f"<u>{text}</u>" if cell.second else text
    return text + raised(cell.marks) + (f" ({cell.more})" if cell.more else "")


def _paragraphs(lines: list[str]) -> list[str]:
    return [part for line in lines for part in (line, "")]


def _list(lines: list[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""]
