"""Means of the ratios to FullKV over records."""

import pandas as pd

from kvbench.utils.ratios import RATIOS


def means(records: pd.DataFrame) -> dict[str, float]:
    """The mean of each ratio over the records; NaN where they are of a version that lacks it."""
    return {name: records[name].mean() if name in records else float("nan") for name in RATIOS}
