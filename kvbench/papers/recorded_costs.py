"""The costs of kvbench's experiments in a file: computing all of them takes too long for a line of help."""

import csv
from functools import cache
from pathlib import Path

from kvbench.utils.text import count

# Made by scripts/maintenance/make_costs.py.
COSTS = Path(__file__).with_name("costs.csv")
COLUMNS = ("experiment", "records", "gpu_hours", "gib")


@cache
def costs() -> dict[str, dict[str, str]]:
    """The rows of COSTS by experiment; cells without an estimate are empty."""
    with COSTS.open(encoding="utf-8", newline="") as file:
        return {row["experiment"]: row for row in csv.DictReader(file)}


def short_cost(experiment: str) -> str:
    """Records, estimated GPU hours and memory in a few words; empty for an experiment that is not in the file."""
    if (row := costs().get(experiment)) is None:
        return ""
    records = count(int(row["records"]), "record")
    if not row["gpu_hours"]:
        return records
    return f"{records}, {hours_text(float(row['gpu_hours']))}, {gib_text(float(row['gib']))}"


def hours_text(hours: float) -> str:
    """GPU hours with two significant digits."""
    if hours < 0.01:
        return "under 0.01 GPU hours"
    rounded = float(f"{hours:.2g}")
    return f"{rounded:,.{2 if rounded < 0.1 else 1 if rounded < 10 else 0}f} GPU hours"


def gib_text(gib: float) -> str:
    return f"{gib:,.1f} GiB" if gib < 10 else f"{gib:,.0f} GiB"
