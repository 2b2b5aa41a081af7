"""The leaderboard's tables as one Markdown text and as one HTML page that needs no other file."""

import re
from collections.abc import Sequence
from html import escape

from kvbench.report.page.still import bullets, document, table
from kvbench.report.tables.text_table import markdown_rows
from kvbench.runner.leaderboard.tables import Cell, Table, anchor

TITLE = "Leaderboard"
MARKUP = re.compile(r"[\\`*\[\]]|(?<!\w)_(?=\w)|~(?=~)")  # once the marks of HTML are escaped
RULES = (
    "A board has the records of one model and benchmark whose weights, chat template, question, source of the first "
    "token, dtype, samples, and versions of benchmark and metrics agree; settings whose parameters or method versions "
    "differ have rows of their own.",
    "Ranks are one more than the number of entries whose 95 % interval, over what was drawn independently, lies wholly "
    "above: overlapping intervals tie. Only settings with all samples of their board are ranked, FullKV among them.",
    "Within a target of bytes an entry is a method's setting with the most bytes, at most 5 % over the target.",
    "Rows are in the order of the mean over the targets that an entry has, which may lack the smallest: it is no rank.",
    "Each score leads to the records that it is the mean of; `kvbench verify FOLDER` says what of them is proven.",
    "No answer was made again for this page: `kvbench verify FOLDER --rerun K` does so for K drawn samples.",
    "A submission with something wrong, without all records that its runs requested, damaged, or with records of "
    "another one is listed apart and not ranked.",
)


def markdown(tables: Sequence[Table]) -> str:
    parts = [f"# {TITLE}\n", *(f"- {rule}" for rule in RULES)]
    for section in tables:
        parts.append(f"\n{'#' * section.level} {_plain(section.title)}\n")
        parts += [f"{_plain(section.about)}\n"] * bool(section.about)
        parts += markdown_rows(section.header, [[_linked(cell) for cell in row] for row in section.rows])
    return "\n".join(parts) + "\n"


def _linked(cell: Cell) -> str:
    return f"[{_plain(cell.text)}]({cell.link})" if cell.link else _plain(cell.text)


def _plain(text: str) -> str:
    """A text that Markdown shows as it is; names in packs are a stranger's."""
    text = escape(text, quote=False)
    return MARKUP.sub(r"\\\g<0>", text)


def html(tables: Sequence[Table]) -> str:
    parts = [bullets(RULES)]
    for section in tables:
        fragment = escape(anchor(section.title), quote=True)
        parts.append(f'<h{section.level} id="{fragment}">{escape(section.title)}</h{section.level}>')
        parts += [f"<p>{escape(section.about)}</p>"] * bool(section.about)
        parts.append(table(section.header, [[_html_cell(cell) for cell in row] for row in section.rows]))
    return document(TITLE, parts)


def _html_cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f'<a href="{escape(cell.link, quote=True)}">{text}</a>' if cell.link else text
