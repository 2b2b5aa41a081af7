"""Pages of text and tables in the style of a run's page, without scripts: leaderboards and verdicts."""

import re
from collections.abc import Sequence
from html import escape

from kvbench.report.page.page import ASSETS, source_hash


def document(title: str, parts: Sequence[str]) -> str:
    """A page that needs no other file; `parts` are HTML."""
    style = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "still.css"))
    policy = f"default-src 'none'; style-src {source_hash(style)}; img-src data:"
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title>\n<style>{style}</style>",
    ]
    body = ["<body>", f"<h1>{escape(title)}</h1>", *parts, "</body>", "</html>", ""]
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', *head, *body])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells in HTML; on a narrow screen each cell stands on a line of its own, after its column's name."""
    names = [escape(name, quote=True) for name in header]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "\n".join(f"<tr>{''.join(map(_cell, names, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table class="stacked">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(column: str, content: str) -> str:
    return f'<td data-column="{column}"><div>{content}</div></td>'


def bullets(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{marked(text)}</li>' for text in texts)}</ul>"


def marked(text: str) -> str:
    """A text as HTML, `code` between backticks as such."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
