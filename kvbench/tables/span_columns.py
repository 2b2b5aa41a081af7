"""What a run's table says of marked spans: the share of each that a setting keeps."""

import pandas as pd

NOTE = "kept of …: share of a marked span's tokens that the compressed layers keep, mean over layers, heads and samples"


def of_spans(group: pd.DataFrame) -> dict[str, float]:
    """Columns of one setting's row: the mean share of each span that any of its records has."""
    if "spans_kept" not in group:
        return {}
    shares = pd.DataFrame([row for row in group["spans_kept"] if isinstance(row, dict)])
    return {f"kept of {name}": shares[name].mean() for name in shares.columns}


def span_columns(summary: pd.DataFrame) -> list[str]:
    """The columns of `of_spans` in a table's rows."""
    return [name for name in summary.columns if str(name).startswith("kept of ")]
