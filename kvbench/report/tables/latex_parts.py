"""A long table in LaTeX as several floats, since a float that is taller than a page runs off it."""

from collections.abc import Iterable, Sequence

LINES = 44  # of \small, rules among them: a page of article has room for them
FITTING = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"  # what is too wide; needs graphicx
CONTINUED = "\\addtocounter{table}{-1}\\caption{(continued)}"  # under the number of the first float


def parts(blocks: Iterable[tuple[str, Sequence[str]]], around: str) -> list[list[str]]:
    """The rows of each float beside `around`, the text of its caption and notes; one float if a page has room for it.

    A block is a heading, or "", and its rows, each of one line or more. It stays whole where a page has room for it.
    The heading stands above its first row in each float, unless that of the block before is the same.
    """
    room = max(LINES - len(around) // 70, 10)  # characters of a line of text
    made: list[list[str]] = []
    above, free = "", 0
    for heading, rows in blocks:
        whole = _height(["\\midrule", heading, *rows]) <= room
        for i, row in enumerate(rows):
            opening = _opening(heading, above) if i == 0 else []
            if free < _height([*opening, *(rows if i == 0 and whole else [row])]):
                made.append([])
                free, opening = room, _opening(heading, "")
            made[-1] += [*opening, row]
            free -= _height([*opening, row])
            above = heading
    return made


def _opening(heading: str, above: str) -> list[str]:
    return ["\\midrule", *([heading] if heading not in ("", above) else [])]


def _height(rows: Sequence[str]) -> int:
    """Lines of rows."""
    return sum(1 + row.count("\n") for row in rows)
