"""Methods × tasks as LaTeX, for documents with the packages booktabs and graphicx."""

import re
from collections.abc import Sequence

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import SCORES
from kvbench.records.identity import FULL
from kvbench.report.tables.latex_parts import NEEDS, floats, parts
from kvbench.report.tables.paper.latex import escape
from kvbench.report.tables.run_table import FLOORED, FLOORED_MARK, UNEVEN, uneven
from kvbench.report.tables.text_latex import with_minus
from kvbench.report.tables.text_table import MISSING
from kvbench.utils.text import shortest


def task_latex(frame: pd.DataFrame, summary: pd.DataFrame, caption: str, label: str) -> str:
    """A float, several for a long one: a row per setting, grouped by ratio or budget, FullKV first; a column per task.

    frame    the rows of `task_table.of_one`: kind, task, samples, and a column per setting
    summary  a row per setting with setting, method, requested, request, floored, lacking and its bytes, as
             `run_table.summarise` makes it
    label    what \\ref names, after "tab:"

    The best printed score of a task among several settings of one ratio or budget is bold; floored settings are
    left out.
    """
    size = str(summary["bytes"].iloc[0])
    scores = frame.set_index("task")
    blocks = [_group(group, size, scores) for group in _groups(summary)]
    header = ["method", size, *scores.index]
    bold = any("\\textbf" in line for _, lines in blocks for line in lines)
    notes = ["Bold: the best of each ratio or budget."] * bold
    notes += [f"{FLOORED_MARK} {FLOORED}; not compared."] * bool(summary["floored"].any())
    notes += [f"{UNEVEN[0].upper()}{UNEVEN[1:]}."] * uneven(summary)
    caption = escape(" ".join([caption + ".", *notes]))
    named = f"\\caption{{{caption}}}\n\\label{{tab:{re.sub('[^A-Za-z0-9.-]', '-', label)}}}"
    alignment = "l" + "r" * (len(header) - 1)
    top = _line([escape(name) for name in header])
    return "\n".join([NEEDS, *floats(parts(blocks, caption), "table*", named, alignment, top)])


def _groups(summary: pd.DataFrame) -> list[pd.DataFrame]:
    """The settings of FullKV, of methods that take no ratio, and of each ratio or budget."""
    full = summary["method"] == FULL
    compressed = summary[~full]
    return [
        group
        for group in (
            summary[full],
            compressed[compressed["requested"].isna()],
            *(
                group
                for request in ("ratio", "budget")
                for _, group in compressed[compressed["request"] == request].groupby("requested")
            ),
        )
        if len(group)
    ]


def _group(group: pd.DataFrame, size: str, scores: pd.DataFrame) -> tuple[str, list[str]]:
    """The ratio or budget, or "", and a line per setting."""
    requested = group["requested"].iloc[0]
    printed = {name: [_number(x, kind) for x, kind in _column(scores, name)] for name in group["setting"]}
    compared = [] if pd.isna(requested) else [printed[name] for name in group.loc[~group["floored"], "setting"]]
    best = [_best([cells[i] for cells in compared], kind) for i, kind in enumerate(scores["kind"])]
    amount = "" if pd.isna(requested) else f"{group['request'].iloc[0]} {shortest(requested)}"
    heading = f"\\multicolumn{{{2 + len(scores)}}}{{l}}{{\\textit{{{amount}}}}} \\\\" if amount else ""
    twice = group["method"].duplicated(keep=False)
    lines = []
    for (_, row), several in zip(group.iterrows(), twice, strict=True):
        cells = [
            f"\\textbf{{{escape(cell)}}}" if cell == top and not row["floored"] else escape(cell)
            for cell, top in zip(printed[row["setting"]], best, strict=True)
        ]
        name = titled(row["setting"] if several else row["method"])
        lines.append(_line([escape(name + FLOORED_MARK * row["floored"]), escape(_number(row[size], "")), *cells]))
    return heading, lines


def _column(scores: pd.DataFrame, setting: str) -> list[tuple[float, str]]:
    return list(zip(scores[setting], scores["kind"], strict=True))


def _number(value: float, kind: str) -> str:
    """A score in the digits that official tables have of its hundredfold."""
    if pd.isna(value):
        return MISSING
    digits = 4 if kind in SCORES else 2 if kind else 3
    return with_minus(f"{value:.{digits}f}")


def _best(cells: Sequence[str], kind: str) -> str | None:
    """The highest of several scores as printed; None where the row has no scores, or all settings have the same."""
    known = [cell for cell in cells if cell != MISSING]
    if kind not in SCORES or len(set(known)) < 2:
        return None
    return max(known, key=lambda cell: float(cell.replace("−", "-")))


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"
