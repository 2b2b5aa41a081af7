"""The table at the end of a run: one row per setting, from records alone."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.table import Table

from kvbench.metrics.aggregate import tokens_per_s
from kvbench.metrics.bootstrap import interval, stratified
from kvbench.tables.layout import (
    _number,
    markdown_rows,
    rich_rows,
)


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


FLOORED = "* less was asked for than the method can go down to; r is what it came to"


def rich_table(summary: pd.DataFrame, metrics: Sequence[str], title: str) -> Table:
    return rich_rows(*cells(summary, metrics), title, [FLOORED] * bool(summary["floored"].any()))


def write_table(summary: pd.DataFrame, metrics: Sequence[str], folder: Path, caption: str) -> list[Path]:
    """table.csv with every digit, table.md to read."""
    lines = markdown_rows(*cells(summary, metrics))
    notes = ["", FLOORED] if summary["floored"].any() else []
    csv, markdown = folder / "table.csv", folder / "table.md"
    summary.to_csv(csv, index=False)
    markdown.write_text("\n".join([caption, "", *lines, *notes]) + "\n", encoding="utf-8")
    return [csv, markdown]
