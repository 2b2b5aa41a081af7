"""The page's data of a run of benchmark=speed."""

from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.papers.captions import caption
from kvbench.records.load import load_for_command
from kvbench.records.manifest import read_manifests
from kvbench.records.provenance import model_name
from kvbench.report.page.command_lines import command_lines
from kvbench.report.page.labels import as_requested
from kvbench.report.page.plain_table import plain_table
from kvbench.report.tables.speed_table import by_machine, measured_on, notes, speed_table, speeds
from kvbench.utils.text import count


def read_speed(folder: Path) -> dict[str, Any]:
    """Name, manifests and tables of a speed run; rows as in the run's own table."""
    manifests = list(read_manifests(folder)[0].values())
    records = as_requested(load_for_command(folder), manifests)
    records = records.assign(setting=records["label"])
    return {
        "name": folder.resolve().name,
        "model": records["model"].iloc[0],
        "tables": [_table(group, model_name(records["model"].iloc[0], manifests)) for group in by_machine(records)],
        "manifests": manifests,
        "commands": command_lines(manifests),
    }


def _table(records: pd.DataFrame, model: str) -> dict[str, Any]:
    first, frame = records.iloc[0], speeds(records)
    dtype = first["dtype"] if isinstance(first["dtype"], str) else ""
    on = f"{first['machine']}, {count(first['threads'], 'thread')}"
    table = speed_table(frame, caption("", first["benchmark"], model, dtype, on), notes(records, frame))
    return {**plain_table(table, frame["method"]), "machine": measured_on(frame)}
