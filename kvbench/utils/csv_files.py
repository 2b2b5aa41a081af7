"""CSV files whose text stays text in spreadsheets."""

from pathlib import Path

import pandas as pd

from kvbench.utils.columns import with_columns
from kvbench.utils.files import write_atomically

# A spreadsheet takes a cell that begins with one of these for a formula, and may run it.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write the frame without its index, atomically and as UTF-8; every line ends with a line feed."""
    write_atomically(path, csv_text(frame))


def csv_text(frame: pd.DataFrame) -> str:
    """The frame as CSV; text, in cells or as a column's name, that looks like a formula is preceded by a quote."""
    texts = frame.select_dtypes(include=["object", "string", "category"])
    quoted = with_columns(frame, {name: texts[name].map(quoted_text) for name in texts})
    return quoted.rename(columns=quoted_text).to_csv(index=False, lineterminator="\n")


def quoted_text(value: object) -> object:
    """The value; text that a spreadsheet would take for a formula is preceded by an apostrophe.

    Line ends become line feeds: pandas does not quote a carriage return, which ends a row for most readers.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if value.startswith(FORMULA) else text
