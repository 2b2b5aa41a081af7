"""Records as a pandas frame."""

from pathlib import Path

import pandas as pd

from kvbench.errors import UserError
from kvbench.results.store import RECORDS, read_records


def load(folder: str | Path) -> pd.DataFrame:
    """All whole records of a run's folder, one row each, in the order they were written."""
    path = Path(folder) / RECORDS
    if not path.is_file():
        raise UserError(f"{folder} holds no {RECORDS}")
    return pd.DataFrame(read_records(path)[0])
