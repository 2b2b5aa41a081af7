"""The page's data of a frontier, from the files that `kvbench frontier` left in a run's folder."""

from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.frontier import as_score
from kvbench.report.page.run_tables import number
from kvbench.report.tables.text_table import as_shown
from kvbench.utils.console import warn


def read_frontier(folder: Path) -> dict[str, Any] | None:
    """Table, sentence and every setting that was tried, scores from 0 to 1; None where the folder has no frontier."""
    csv, markdown = folder / "frontier.csv", folder / "frontier.md"
    if not (csv.is_file() and markdown.is_file()):
        return None
    try:
        return _text(markdown.read_text(encoding="utf-8")) | _points(pd.read_csv(csv))
    except (LookupError, ValueError) as error:
        warn(f"the frontier in {folder} cannot be read and is left out; the same command writes it again: {error!r}")
        return None


def _text(markdown: str) -> dict[str, Any]:
    """What `write_frontier` wrote: the caption, a table, its notes and the sentence, with empty lines between them."""
    caption, table, *notes, sentence = markdown.strip().split("\n\n")
    header, _, *rows = [_cells(line) for line in table.splitlines()]
    rows = [[titled(name), *cells] for name, *cells in rows]
    caption, *notes = map(as_shown, (caption, *notes))
    return {"caption": caption, "header": header, "rows": rows, "notes": notes, "sentence": sentence}


def _cells(line: str) -> list[str]:
    return [as_shown(cell) for cell in line.removeprefix("| ").removesuffix(" |").split(" | ")]


def _points(frame: pd.DataFrame) -> dict[str, Any]:
    first = frame.iloc[0]
    full = first["score"] - first["difference"]
    return {
        "full": number(full),
        "least": number(full - first["margin"]),  # that keeps the share of FullKV's score
        "points": [
            {
                "label": titled(row["setting"]),
                "method": row["method"],
                "title": titled(row["method"]),
                "r_bytes": number(row["r_bytes"]),
                "scores": {"score": [number(as_score(full, row[name])) for name in ("difference", "low", "high")]},
                "held": bool(row["held"]),
            }
            for _, row in frame.iterrows()
        ],
    }
