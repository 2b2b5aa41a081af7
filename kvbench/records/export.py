"""A frame of records as a CSV or Parquet file."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from kvbench.errors import on_disk
from kvbench.records.store import to_json
from kvbench.utils.columns import with_columns
from kvbench.utils.csv_files import csv_text
from kvbench.utils.extras import require
from kvbench.utils.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa


def write_csv(records: pd.DataFrame, path: Path) -> None:
    """Lists and mappings (tokens, scores, …) become JSON text; texts are for spreadsheets, as in every CSV file."""
    texts = {name: as_json(records[name]) for name in _objects(records)}
    with on_disk(f"write {path}"), replacing(path) as work:
        work.write_text(csv_text(with_columns(records, texts)), encoding="utf-8", newline="")


def write_parquet(records: pd.DataFrame, path: Path) -> None:
    """Lists and mappings are kept; a column of more than one type, or of mappings without keys, becomes JSON text."""
    require("a Parquet file", "pyarrow")
    texts = {name: as_json(records[name]) for name in _objects(records) if not _one_type(records[name])}
    with on_disk(f"write {path}"), replacing(path) as work:
        with_columns(records, texts).to_parquet(work, index=False)


def as_json(column: pd.Series) -> pd.Series:
    """Text unchanged, missing values as missing, everything else as JSON."""

    def text(value: object) -> object:
        if isinstance(value, str) or (not isinstance(value, (list, dict)) and pd.isna(value)):
            return value
        return to_json(value)

    return column.map(text)


def _objects(records: pd.DataFrame) -> list[str]:
    return [name for name in records if records[name].dtype == object]


def _one_type(column: pd.Series) -> bool:
    import pyarrow as pa

    try:
        return _has_keys(pa.array(column, from_pandas=True).type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError):
        return False


def _has_keys(kind: "pa.DataType") -> bool:
    """Whether all mappings in a column of this type have keys, without which Parquet cannot store them."""
    import pyarrow as pa

    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return all(map(_has_keys, inner)) and bool(inner or not pa.types.is_struct(kind))
