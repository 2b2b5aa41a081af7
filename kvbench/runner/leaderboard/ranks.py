"""Settings within a target of bytes, and their ranks with ties."""

import pandas as pd

from kvbench.records.identity import FULL

OVER = 1.05  # r_bytes may be so many times a target


def within(settings: pd.DataFrame, target: float, by: str = "method") -> pd.DataFrame:
    """Each method's setting with the most bytes within the target, and FullKV, with their ranks, by the column `by`.

    A rank is one more than the number of them whose interval lies wholly above: overlapping intervals tie. It is nan
    without an interval.
    """
    fits = (settings["r_bytes"] <= OVER * target) | (settings["method"] == FULL)
    most = settings[fits].sort_values("r_bytes", kind="stable").groupby(by).tail(1)
    best = most.set_index(by).sort_index()
    ranks = [1 + int((best["low"] > high).sum()) if high == high else float("nan") for high in best["high"]]
    return best.assign(rank=pd.Series(ranks, index=best.index, dtype="Int64"))


def above(settings: pd.DataFrame, target: float) -> pd.DataFrame:
    """The settings of methods that have none within the target."""
    least = settings.groupby("method")["r_bytes"].transform("min")
    return settings[(least > OVER * target) & (settings["method"] != FULL)]
