"""Is every figure in results/published the paper's, and does the papers' arithmetic hold where no erratum says so?

    python scripts/check_published.py --papers FOLDER [ITEM…]

FOLDER (or the environment variable KVBENCH_PAPERS) holds the papers' text as Markdown, one file a paper:
pyramidkv.md, simlayerkv.md, spindlekv.md, pooling_merge.md. Compared are, line by line in print order, label,
number of figures and each figure as printed, and what the headings say of it (model, method, setting, column);
of running text, the figure behind the words that stand before it. Then averages are taken again, and figures that
a paper prints twice held against each other. Exits 1 on any difference.
"""

import argparse
import os
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from pathlib import Path

import pandas as pd
from papers_text import LAYOUTS, Line, paper_text, plain, read_table

from kvbench.errors import UserError
from kvbench.papers.published import PUBLISHED, concerns, errata, items, published

CELL = ["model", "method", "setting"]


@dataclass
class Count:
    """What became of an item's figures."""

    equal: int = 0
    damaged: int = 0  # found in the right column of lines that ran into one another
    lost: int = 0  # not legible in the text, and empty in the data
    problems: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", nargs="*", metavar="ITEM", help="such as spindlekv_table10; default: all")
    parser.add_argument("--papers", type=Path, default=os.environ.get("KVBENCH_PAPERS"), help="the papers' text")
    parser.add_argument("--published", type=Path, default=PUBLISHED, help="the data, if not the repository's")
    args = parser.parse_args()
    try:
        return check(args.items, args.papers, args.published)
    except UserError as error:
        print(f"check_published: {error}", file=sys.stderr)
        return 2


def check(names: list[str], papers: Path | None, folder: Path) -> int:
    if papers is None:
        raise UserError("where is the papers' text? Name its folder with --papers or KVBENCH_PAPERS")
    figures = {name: published(name, folder) for name in names or items(folder)}
    wrong = {name: errata(name, folder) for name in figures}
    counts = {name: compare(name, frame, Path(papers), folder) for name, frame in figures.items()}
    print(f"{'item':24}{'equal':>8}{'damaged':>9}{'lost':>6}")
    for name, count in counts.items():
        print(f"{name:24}{count.equal:8}{count.damaged:9}{count.lost:6}")
    total = [sum(getattr(count, kind) for count in counts.values()) for kind in ("equal", "damaged", "lost")]
    print(f"{'all':24}{total[0]:8}{total[1]:9}{total[2]:6}")
    problems = [problem for count in counts.values() for problem in count.problems]
    taken, odd = averages(figures, wrong)
    pairs, apart = repeats(figures, wrong)
    print(f"{taken} averages taken again, {pairs} figures printed more than once")
    problems += odd + apart
    for problem in problems:
        print(f"DIFFERENT {problem}")
    print(f"{len(problems)} differences")
    return 1 if problems else 0


def compare(name: str, figures: pd.DataFrame, papers: Path, folder: Path) -> Count:
    """The figures of one item against the paper's text."""
    text = paper_text(papers, figures["paper"].iloc[0])
    if name not in LAYOUTS:
        return _compare_prose(name, figures, plain(text))
    lines = read_table(text, name)
    count = Count()
    queue = [line for line in lines if not line.damaged]
    if queue and not queue[0].label:
        _compare_lengths(name, queue.pop(0), folder, count)
    for row, group in groupby(figures.to_dict("records"), key=lambda figure: figure["row"]):
        group = list(group)
        if queue and queue[0].label == row:
            _compare_line(name, group, queue.pop(0), lines, count)
        elif all(figure["note"].startswith(("damaged", "lost")) for figure in group):
            _compare_line(name, group, Line(row, [None] * len(group), [], [{}] * len(group), [], True), lines, count)
        else:
            found = f"the paper has {queue[0].label!r}" if queue else "the paper's table has ended"
            count.problems.append(f"{name}: line {row!r} is due, {found}")
            return count
    count.problems += [f"{name}: the paper's line {line.label!r} is not in the data" for line in queue]
    return count


def _compare_line(name: str, group: list[dict], line: Line, lines: list[Line], count: Count) -> None:
    if len(group) != len(line.figures):
        problem = f"{name}: line {line.label!r} has {len(group)} figures, the paper {len(line.figures)}"
        count.problems.append(problem)
        return
    for i, (figure, found, facts) in enumerate(zip(group, line.figures, line.facts, strict=True)):
        where = f"{name}, line {line.label!r}, {figure['model']} {figure['method']} {figure['column']}:"
        if found == (figure["printed"] or None):
            count.equal += found is not None
            count.lost += found is None
        elif figure["note"].startswith("damaged") and figure["printed"] in _legible(lines, i):
            count.damaged += 1
        else:
            count.problems.append(f"{where} {figure['printed'] or 'none'}, the paper has {found or 'none'}")
        for key, value in facts.items():
            if figure[key] != value:
                count.problems.append(f"{where} {key} is {figure[key]!r}, the paper's heading means {value!r}")
        words = f"{figure['setting']} {figure['note']}"
        count.problems += [f"{where} {word!r} is not in its setting" for word in line.unnamed if word not in words]


def _legible(lines: list[Line], position: int) -> set[str]:
    """All figures that stand in one column of a table."""
    return {figure for line in lines if position < len(line.cells) for figure in line.cells[position].split()}


def _compare_lengths(name: str, line: Line, folder: Path, count: Count) -> None:
    """The prompt lengths over PyramidKV's tables are those of its Table 3."""
    table = published("pyramidkv_table3", folder)
    lengths = table[table["setting"] == "Avg len"].set_index("column")["value"]
    for found, facts in zip(line.figures, line.facts, strict=True):
        if found and float(found) != lengths[facts["column"]]:
            count.problems.append(f"{name}: length {found} of {facts['column']} is not Table 3's")


def _compare_prose(name: str, figures: pd.DataFrame, text: str) -> Count:
    count = Count()
    for figure in figures.to_dict("records"):
        start = text.find(figure["row"])
        behind = text[start + len(figure["row"]) :].lstrip() if start >= 0 else ""
        rest = behind.removeprefix(figure["printed"])
        if start >= 0 and rest != behind and not rest[:1].isdigit() and not (rest[:1] == "." and rest[1:2].isdigit()):
            count.equal += 1
        else:
            count.problems.append(f"{name}: {figure['printed']} does not follow {figure['row']!r} in the paper")
    return count


def averages(figures: dict[str, pd.DataFrame], wrong: dict[str, pd.DataFrame]) -> tuple[int, list[str]]:
    """Printed averages that are not the mean of their cells to rounding, or are although an erratum denies it."""
    taken, problems = 0, []
    for name, frame in figures.items():
        for where, group in frame.groupby(CELL, sort=False):
            printed = group[group["column"] == "average"]
            cells = group[(group["column"] != "average") & group["unit"].isin(printed["unit"])]
            if printed.empty or len(cells) < 2 or cells["value"].isna().any() or printed["value"].isna().any():
                continue
            taken += 1
            mean, average = cells["value"].mean(), printed["value"].iloc[0]
            step = 10.0 ** Decimal(printed["printed"].iloc[0]).as_tuple().exponent  # cells and average are rounded
            known = _covered(printed, wrong[name], {"average"})
            if (abs(mean - average) > step + 1e-9) != known:
                problems.append(
                    f"{name}, {' '.join(filter(None, where))}: average {average}, mean of {len(cells)} cells "
                    f"{mean:.4f}{', yet an erratum calls it wrong' if known else ''}"
                )
    return taken, problems


def repeats(figures: dict[str, pd.DataFrame], wrong: dict[str, pd.DataFrame]) -> tuple[int, list[str]]:
    """Figures that one paper prints differently in two tables, where no erratum says so."""
    whole = pd.concat([frame.assign(name=name) for name, frame in figures.items()], ignore_index=True)
    size = whole.groupby(["name", *CELL])["column"].transform("size")
    whole["of"] = size.where(whole["column"] == "average", 0)  # averages over other tasks do not compare
    whole = whole[(whole["item"] != "Text") & whole["value"].notna()]
    twice, problems = 0, []
    for _, group in whole.groupby(["paper", *CELL, "column", "of"], sort=False):
        if group["name"].nunique() < 2:
            continue
        twice += 1
        if group["value"].nunique() == 1:
            continue
        kinds = {"contradiction", "mislabelled", "illegible"}
        if not any(_covered(cell, wrong[name], kinds) for name, cell in group.groupby("name")):
            first = group.iloc[0]
            prints = ", ".join(f"{row['printed']} in {row['item']}" for _, row in group.iterrows())
            problems.append(f"{first['paper']}, {first['model']} {first['method']} {first['column']}: {prints}")
    return twice, problems


def _covered(cells: pd.DataFrame, wrong: pd.DataFrame, kinds: set[str]) -> bool:
    return any(concerns(erratum, cells).any() for _, erratum in wrong[wrong["kind"].isin(kinds)].iterrows())


if __name__ == "__main__":
    raise SystemExit(main())
