"""Records as a pandas frame."""

from pathlib import Path

import pandas as pd

from kvbench.errors import UserError
from kvbench.results.store import RECORDS, read_records, record_files


def load(folder: str | Path) -> pd.DataFrame:
    """All whole records of a run's folder, one row each, shard after shard in the order they were written."""
    files = record_files(Path(folder))
    if not files:
        raise UserError(f"{folder} holds no {RECORDS}")
    return pd.DataFrame([record for file in files for record in read_records(file)[0]])
