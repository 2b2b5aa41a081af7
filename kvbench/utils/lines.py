"""Texts in lines of the terminal's width."""

import re
from shutil import get_terminal_size
from textwrap import wrap
from typing import NamedTuple

LEAST = 40  # characters of a line that a text gets beside a name
# A name and what is said about it, with two blanks or more between them.
_ROW = re.compile(r"( +\S.*? {2,})(\S.*)")


def columns() -> int:
    """Characters of a line: the terminal's, or 120 if there is none."""
    return get_terminal_size((120, 24)).columns


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, or of LEAST where that is more."""
    return wrap(text, max(width, LEAST), break_on_hyphens=False)


class _Block(NamedTuple):
    """Lines of a text that belong together."""

    before: str  # what stands in front of the first line: a name
    parts: list[str]  # the text in lines
    whole: bool = False  # whether its only line is not broken


def fitted(text: str, width: int) -> str:
    """A text whose paragraphs and two-column tables are broken anew into lines of at most `width` characters.

    Other indented lines are commands to copy, which stay as they are.
    """
    lines: list[str] = []
    for block in _blocks(text):
        indent = len(block.before)
        broken = [" ".join(block.parts)] if block.whole else wrapped(" ".join(block.parts), width - indent)
        lines += [f"{(' ' * indent if number else block.before)}{line}" for number, line in enumerate(broken or [""])]
    return "\n".join(lines)


def _blocks(text: str) -> list[_Block]:
    """Paragraphs, rows of tables, and single lines that are blank or stay whole."""
    blocks: list[_Block] = []
    for line in text.splitlines():
        stripped, last = line.lstrip(), blocks[-1] if blocks else None
        indent = len(line) - len(stripped)
        if last and stripped and not last.whole and indent == len(last.before):
            last.parts.append(stripped)  # the text of a paragraph or a row goes on
        elif row := _ROW.fullmatch(line):
            blocks.append(_Block(row[1], [row[2]]))
        else:
            blocks.append(_Block("", [line], whole=bool(indent) or not stripped))
    return blocks
