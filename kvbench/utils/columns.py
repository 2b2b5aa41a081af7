"""Columns of a frame by names that somebody else chose."""

from collections.abc import Mapping
from typing import Any

import pandas as pd


def with_columns(frame: pd.DataFrame, columns: Mapping[Any, pd.Series]) -> pd.DataFrame:
    """`frame.assign(**columns)`, which refuses a column named `self`, for columns of any name."""
    frame = frame.copy()
    for name, column in columns.items():
        frame[name] = column
    return frame
