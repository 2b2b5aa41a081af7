"""The share of marked spans that each setting keeps: columns of a run's table.csv, and a table below its own."""

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.report.tables.text_table import TextTable, number

TITLE = "share of the tokens of marked spans that the compressed layers keep, mean over layers, heads and samples"
KEPT = "kept of "


def of_spans(group: pd.DataFrame) -> dict[str, float]:
    """Columns of one setting's row: the mean share of each span that any of its records has."""
    if "spans_kept" not in group:
        return {}
    shares = pd.DataFrame([row for row in group["spans_kept"] if isinstance(row, dict)])
    return {f"{KEPT}{name}": shares[name].mean() for name in shares.columns}


def span_table(summary: pd.DataFrame) -> TextTable | None:
    """The columns of `of_spans` as text, a row per setting; None where no sample has a marked span."""
    columns = [name for name in summary.columns if str(name).startswith(KEPT)]
    if not columns:
        return None
    rows = [[titled(row["setting"]), *(number(row[name]) for name in columns)] for _, row in summary.iterrows()]
    return TextTable(["", *(name.removeprefix(KEPT) for name in columns)], rows, TITLE)
