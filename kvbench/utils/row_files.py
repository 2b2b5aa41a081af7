"""Rows of data files in the forms in which data sets are published: JSON lines, a JSON array, Parquet, Arrow."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kvbench.errors import UserError
from kvbench.utils.extras import require
from kvbench.utils.jsonl import FieldType, checked_rows, read_rows
from kvbench.utils.regular_files import open_regular, read_text
from kvbench.utils.text import first_line


def read_file(
    path: Path,
    fields: Mapping[str, FieldType | tuple[FieldType, ...]],
    *,
    filled: Collection[str] = (),
    unique: str | None = None,
) -> list[dict[str, Any]]:
    """The rows of a file, checked as by `kvbench.utils.jsonl.read_rows`; its ending names its form.

    A .json file is an array of objects or, like .jsonl, an object in each line. Raises UserError that names the file.
    """
    if path.suffix in (".parquet", ".arrow"):
        return checked_rows(path, enumerate(_table(path), 1), fields, filled=filled, unique=unique)
    if path.suffix == ".json" and _is_array(path):
        return checked_rows(path, enumerate(_array(path), 1), fields, filled=filled, unique=unique)
    return read_rows(path, fields, filled=filled, unique=unique)


def _is_array(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _array(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = json.loads(read_text(path, "utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path} is not a JSON array in UTF-8: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path} is a JSON array of something other than objects")
    return rows


def _table(path: Path) -> list[dict[str, Any]]:
    require(str(path), "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        open_regular(path).close()
        if path.suffix == ".parquet":
            rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        else:
            with pa.memory_map(str(path)) as source:
                rows = pa.ipc.open_stream(source).read_all().to_pylist()  # the form of datasets.save_to_disk
    except (OSError, pa.ArrowException) as error:
        kind = "a Parquet" if path.suffix == ".parquet" else "an Arrow"
        raise UserError(f"{path} is not {kind} file: {first_line(error)}") from error
    return rows
