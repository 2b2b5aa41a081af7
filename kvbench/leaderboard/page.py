"""The leaderboard's tables as one Markdown text and as one HTML page that needs no other file."""

from collections.abc import Sequence
from html import escape

from kvbench.leaderboard.tables import Cell, Table, anchor
from kvbench.report.tables.text_table import markdown_rows

TITLE = "Leaderboard"
RULES = (
    "A board has the records of one model and benchmark whose weights, chat template, dtype, samples, and versions of "
    "benchmark and metrics agree; settings whose parameters or method versions differ have rows of their own.",
    "Ranks are one more than the number of entries whose 95 % interval, over what was drawn independently, lies wholly "
    "above: overlapping intervals tie. Only settings with all samples of their board are ranked, FullKV among them.",
    "Within a target of bytes an entry is a method's setting with the most bytes, at most 5 % over the target.",
    "Each score leads to the records that it is the mean of; `kvbench verify FOLDER` says what of them is proven.",
    "No answer was made again for this page: `kvbench verify FOLDER --rerun K` does so for K drawn samples.",
    "A submission with something wrong, without all records that its runs requested, damaged, or with records of "
    "another one is listed apart and not ranked.",
)
STYLE = (
    "body{font:15px system-ui;margin:2em auto;max-width:90em;padding:0 1em}table{border-collapse:collapse}"
    "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}"
    "div{overflow-x:auto}"
)


def markdown(tables: Sequence[Table]) -> str:
    parts = [f"# {TITLE}\n", *(f"- {rule}" for rule in RULES)]
    for table in tables:
        parts.append(f"\n{'#' * table.level} {_plain(table.title)}\n")
        parts += [f"{_plain(table.about)}\n"] * bool(table.about)
        parts += markdown_rows(table.header, [[_linked(cell) for cell in row] for row in table.rows])
    return "\n".join(parts) + "\n"


def _linked(cell: Cell) -> str:
    return f"[{_plain(cell.text)}]({cell.link})" if cell.link else _plain(cell.text)


def _plain(text: str) -> str:
    """A text that Markdown shows as it is; names in packs are a stranger's."""
    text = escape(text, quote=False)
    return "".join(f"\\{letter}" if letter in r"\`*[]" else letter for letter in text)


def html(tables: Sequence[Table]) -> str:
    parts = [f"<h1>{TITLE}</h1>\n<ul>", *(f"<li>{escape(rule)}</li>" for rule in RULES), "</ul>"]
    for table in tables:
        fragment = escape(anchor(table.title), quote=True)
        parts.append(f'<h{table.level} id="{fragment}">{escape(table.title)}</h{table.level}>')
        parts += [f"<p>{escape(table.about)}</p>"] * bool(table.about)
        head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
        body = "".join(f"<tr>{''.join(f'<td>{_html_cell(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
        parts.append(f"<div><table>\n<tr>{head}</tr>\n{body}</table></div>")
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{TITLE}</title>\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</html>\n"
    )


def _html_cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f'<a href="{escape(cell.link, quote=True)}">{text}</a>' if cell.link else text
