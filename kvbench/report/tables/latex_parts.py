"""A table in LaTeX as floats: several for a long one, since a float that is taller than a page runs off it."""

from collections.abc import Iterable, Sequence

NEEDS = "% needs \\usepackage{booktabs,graphicx}"
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


def floats(
    made: Sequence[Sequence[str]],
    environment: str,
    caption: str,
    alignment: str,
    header: str,
    spacing: str = "",
    below: Sequence[str] = (),
) -> list[str]:
    """The lines of a float for the rows of each of `parts`, below one header.

    caption   of the first float, with what names it
    spacing   what stands behind the size of its letters
    below     lines below the table in the last float
    """
    lines = []
    for i, rows in enumerate(made):
        lines += [
            f"\\begin{{{environment}}}[tp]",
            f"\\centering\\small{spacing}",
            CONTINUED if i else caption,
            FITTING,
            f"\\begin{{tabular}}{{{alignment}}}",
            "\\toprule",
            header,
            *rows,
            "\\bottomrule",
            "\\end{tabular}}",
            *(below if i == len(made) - 1 else ()),
            f"\\end{{{environment}}}",
            "",
        ]
    return lines


def _opening(heading: str, above: str) -> list[str]:
    return ["\\midrule", *([heading] if heading not in ("", above) else [])]


def _height(rows: Sequence[str]) -> int:
    """Lines of rows."""
    return sum(1 + row.count("\n") for row in rows)
