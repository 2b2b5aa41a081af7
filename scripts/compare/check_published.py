"""Compare every value in results/published with the papers' text, and check the papers' arithmetic.

    python -m scripts.compare.check_published --papers FOLDER [ITEM…]

FOLDER (or the environment variable KVBENCH_PAPERS) holds the papers' text as Markdown, one file a paper:
pyramidkv.md, simlayerkv.md, spindlekv.md, pooling_merge.md. Of tables it compares, line by line in print order, the
label, the number of values, each value as printed, and its model, method, setting and column with the headings; of
running text, the value that follows the words before it. Averages that no erratum calls wrong must be the mean of
their cells, and values that a paper prints twice must be equal. The exit code is 1 on any difference.
"""

import os
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from pathlib import Path

import pandas as pd

from kvbench.errors import UserError
from kvbench.papers.published import PUBLISHED, concerns, errata, items, published
from scripts.compare.papers_text import LAYOUTS, Line, paper_text, plain, read_table
from scripts.frame import script_parser

CELL = ["model", "method", "setting"]
PROJECTS = ("kvcache_factory", "kvpress")  # whose values are not a paper's


@dataclass
class Count:
    """The outcome for an item's values."""

    equal: int = 0
    damaged: int = 0  # found in the right column, where the extraction merged lines
    lost: int = 0  # illegible in the text, and empty in the data
    problems: list[str] = field(default_factory=list)


def main() -> int:
    parser = script_parser(__doc__)
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
        raise UserError("no folder of the papers' text: name it with --papers or KVBENCH_PAPERS")
    values = {name: published(name, folder) for name in names or items(folder)}
    values = {name: frame for name, frame in values.items() if frame["paper"].iloc[0] not in PROJECTS}
    wrong = {name: errata(name, folder) for name in values}
    counts = {name: compare(name, frame, Path(papers), folder) for name, frame in values.items()}
    print(f"{'item':24}{'equal':>8}{'damaged':>9}{'lost':>6}")
    for name, count in counts.items():
        print(f"{name:24}{count.equal:8}{count.damaged:9}{count.lost:6}")
    total = [sum(getattr(count, kind) for count in counts.values()) for kind in ("equal", "damaged", "lost")]
    print(f"{'all':24}{total[0]:8}{total[1]:9}{total[2]:6}")
    problems = [problem for count in counts.values() for problem in count.problems]
    taken, odd = averages(values, wrong)
    pairs, apart = repeats(values, wrong)
    print(f"{taken} averages recomputed, {pairs} values printed more than once")
    problems += odd + apart
    for problem in problems:
        print(f"DIFFERENT {problem}")
    print(f"{len(problems)} differences")
    return 1 if problems else 0


def compare(name: str, values: pd.DataFrame, papers: Path, folder: Path) -> Count:
    """Compare the values of one item with the paper's text."""
    text = paper_text(papers, values["paper"].iloc[0])
    if name not in LAYOUTS:
        return _compare_prose(name, values, plain(text))
    lines = read_table(text, name)
    count = Count()
    queue = [line for line in lines if not line.damaged]
    if queue and not queue[0].label:
        _compare_lengths(name, queue.pop(0), folder, count)
    for row, group in groupby(values.to_dict("records"), key=lambda value: value["row"]):
        group = list(group)
        if queue and queue[0].label == row:
            _compare_line(name, group, queue.pop(0), lines, count)
        elif all(value["note"].startswith(("damaged", "lost")) for value in group):
            _compare_line(name, group, Line(row, [None] * len(group), [], [{}] * len(group), [], True), lines, count)
        else:
            reason = f"the paper has {queue[0].label!r}" if queue else "the paper's table has ended"
            count.problems.append(f"{name}: line {row!r} is due, {reason}")
            return count
    count.problems += [f"{name}: the paper's line {line.label!r} is not in the data" for line in queue]
    return count


def _compare_line(name: str, group: list[dict], line: Line, lines: list[Line], count: Count) -> None:
    if len(group) != len(line.values):
        problem = f"{name}: line {line.label!r} has {len(group)} values, the paper {len(line.values)}"
        count.problems.append(problem)
        return
    for i, (value, printed, facts) in enumerate(zip(group, line.values, line.facts, strict=True)):
        where = f"{name}, line {line.label!r}, {value['model']} {value['method']} {value['column']}:"
        if printed == (value["printed"] or None):
            count.equal += printed is not None
            count.lost += printed is None
        elif value["note"].startswith("damaged") and value["printed"] in _legible(lines, i):
            count.damaged += 1
        else:
            count.problems.append(f"{where} {value['printed'] or 'none'}, the paper has {printed or 'none'}")
        for key, expected in facts.items():
            if value[key] != expected:
                count.problems.append(f"{where} {key} is {value[key]!r}, the paper's heading means {expected!r}")
        words = f"{value['setting']} {value['note']}"
        count.problems += [f"{where} {word!r} is not in its setting" for word in line.unnamed if word not in words]


def _legible(lines: list[Line], position: int) -> set[str]:
    """All values in one column of a table."""
    return {value for line in lines if position < len(line.cells) for value in line.cells[position].split()}


def _compare_lengths(name: str, line: Line, folder: Path, count: Count) -> None:
    """The prompt lengths over PyramidKV's tables are those of its Table 3."""
    table = published("pyramidkv_table3", folder)
    lengths = table[table["setting"] == "Avg len"].set_index("column")["value"]
    for length, facts in zip(line.values, line.facts, strict=True):
        if length and float(length) != lengths[facts["column"]]:
            count.problems.append(f"{name}: length {length} of {facts['column']} is not Table 3's")


def _compare_prose(name: str, values: pd.DataFrame, text: str) -> Count:
    count = Count()
    for value in values.to_dict("records"):
        start = text.find(value["row"])
        behind = text[start + len(value["row"]) :].lstrip() if start >= 0 else ""
        rest = behind.removeprefix(value["printed"])
        if start >= 0 and rest != behind and not rest[:1].isdigit() and not (rest[:1] == "." and rest[1:2].isdigit()):
            count.equal += 1
        else:
            count.problems.append(f"{name}: {value['printed']} does not follow {value['row']!r} in the paper")
    return count


def averages(values: dict[str, pd.DataFrame], wrong: dict[str, pd.DataFrame]) -> tuple[int, list[str]]:
    """Printed averages that are not the mean of their cells to rounding, or are although an erratum says otherwise."""
    taken, problems = 0, []
    for name, frame in values.items():
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


def repeats(values: dict[str, pd.DataFrame], wrong: dict[str, pd.DataFrame]) -> tuple[int, list[str]]:
    """Values that one paper prints differently in two tables, where no erratum says so."""
    whole = pd.concat([frame.assign(name=name) for name, frame in values.items()], ignore_index=True)
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
