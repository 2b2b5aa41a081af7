"""The table at the end of a run: one row per setting, from records alone."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich import box, get_console
from rich.table import Table

from kvbench.report.bootstrap import interval, stratified


def summarise(records: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """One row per setting in order of first appearance: means over samples, and the score's 95 % interval.

    Where records tell their task, a score is the mean over the tasks of the tasks' means; a score that only some
    tasks have is that of those.
    """
    rows = []
    for setting, group in records.groupby("setting", sort=False):
        first = group.iloc[0]
        scores = pd.DataFrame(list(group["scores"]), index=group.index, columns=list(metrics))
        if "task" in group:
            by_task = scores.groupby(group["task"])
            low, high = stratified([values for _, values in by_task[metrics[0]]])
            scores = by_task.mean()
        else:
            low, high = interval(scores[metrics[0]])
        rows.append(
            {
                "setting": setting,
                "method": first["method"],
                "asked": first["ratio"] if pd.notna(first["ratio"]) else first["budget"],
                "r": group["r"].mean(),
                "r_bytes": group["r_bytes"].mean(),
                **{metric: scores[metric].mean() for metric in metrics},
                "low": low,
                "high": high,
                "decode_tokens_per_s": tokens_per_s(group),
                "samples": len(group),
                "floored": bool(group["floored"].any()),
            }
        )
    return pd.DataFrame(rows)


def tokens_per_s(records: pd.DataFrame) -> float:
    """Decoded tokens a second, of the sequences that decoded alone; nan where all were in batches."""
    alone = records[records["decode_batch"] == 1] if "decode_batch" in records else records  # older ones were all alone
    seconds = alone["decode_seconds"].sum()
    return alone["decode_steps"].sum() / seconds if seconds else float("nan")


def cells(summary: pd.DataFrame, metrics: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text, for the terminal and for Markdown; speed only where sequences decoded alone."""
    speeds = int(summary["decode_tokens_per_s"].notna().any())
    header = ["method", "asked", "r", "r_bytes", metrics[0], "95 % interval", *metrics[1:], *["tokens/s"] * speeds]
    rows = [
        [
            row["method"],
            "–" if pd.isna(row["asked"]) else f"{row['asked']:g}" + ("*" if row["floored"] else ""),
            f"{row['r']:.3f}",
            f"{row['r_bytes']:.3f}",
            _number(row[metrics[0]]),
            "–" if pd.isna(row["low"]) else f"{row['low']:.2f} – {row['high']:.2f}",
            *(_number(row[metric]) for metric in metrics[1:]),
            *[_number(row["decode_tokens_per_s"], 1)] * speeds,
        ]
        for _, row in summary.iterrows()
    ]
    return header, rows


def _number(value: float, digits: int = 3) -> str:
    return "–" if pd.isna(value) else f"{value:.{digits}f}"


GAP = 2  # between columns
NARROWEST = 12  # column of names
FLOORED = "* less was asked for than the method can go down to; r is what it came to"


def rich_table(summary: pd.DataFrame, metrics: Sequence[str], title: str) -> Table:
    return rich_rows(*cells(summary, metrics), title, [FLOORED] * bool(summary["floored"].any()))


def rich_rows(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, below: Sequence[str]) -> Table:
    """A table for the terminal: text in the first column, numbers in the others, notes below."""
    terminal = get_console().width
    table = Table(
        title=title or None,
        min_width=min(len(title), terminal),
        caption="\n".join(below) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for i, (name, width) in enumerate(zip(header, widths(header, rows, terminal), strict=True)):
        table.add_column(name, justify="left" if i == 0 else "right", width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def widths(header: Sequence[str], rows: Sequence[Sequence[str]], terminal: int) -> list[int]:
    """Of the columns. On a narrow terminal headers are folded, then their words, then names; numbers never."""
    contents = _contents(header, rows)
    found = [max(len(name), content) for name, content in zip(header, contents, strict=True)]
    for least in (
        [contents[0], *_unbroken(header, rows)[1:]],
        contents,
        [min(contents[0], NARROWEST), *contents[1:]],
    ):
        while _across(found) > terminal and (wide := [i for i, width in enumerate(found) if width > least[i]]):
            found[max(wide, key=found.__getitem__)] -= 1
    return found


def blocks(header: Sequence[str], rows: Sequence[Sequence[str]], lead: int, terminal: int) -> list[list[int]]:
    """Groups of columns that fit with no word broken, each behind the first `lead` columns, which all groups have."""
    room = _unbroken(header, rows)
    found = [list(range(lead))]
    for i in range(lead, len(header)):
        if len(found[-1]) > lead and _across([room[j] for j in [*found[-1], i]]) > terminal:
            found.append(list(range(lead)))
        found[-1].append(i)
    return found


def _contents(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max((len(row[i]) for row in rows), default=1) for i in range(len(header))]


def _unbroken(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The widths that break neither a number nor a word of a header."""
    words = [max(map(len, name.split()), default=1) for name in header]
    return [max(pair) for pair in zip(words, _contents(header, rows), strict=True)]


def _across(columns: Sequence[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def write_table(summary: pd.DataFrame, metrics: Sequence[str], folder: Path, caption: str) -> list[Path]:
    """table.csv with every digit, table.md to read."""
    lines = markdown_rows(*cells(summary, metrics))
    notes = ["", FLOORED] if summary["floored"].any() else []
    csv, markdown = folder / "table.csv", folder / "table.md"
    summary.to_csv(csv, index=False)
    markdown.write_text("\n".join([caption, "", *lines, *notes]) + "\n", encoding="utf-8")
    return [csv, markdown]


def markdown_rows(header: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table: text in the first column, numbers in the others."""
    return ["| " + " | ".join(row) + " |" for row in [header, [":--"] + ["--:"] * (len(header) - 1), *rows]]
