"""Parquet files of unknown origin, read within limits on the numbers in their metadata.

A few kilobytes can encode billions of values: repeated values, empty rows and compressed pages cost nothing. So
rows, values and bytes are compared with the file's size and with each other before a page is decompressed. Rows are
decoded a few at a time, so that a long text which many rows repeat is counted before memory holds it that often.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.errors import UserError, on_disk

ROW_ON_DISK = 8  # bytes of the smallest compressed row: its key is a hash of 64 bits
# Decompressed: the largest of a file's least limit, a limit for each row, and one for each byte on disk, which long
# answers need. The last allows no more than as many rows as the file could have.
MOST_BYTES, BYTES_A_ROW, BYTES_A_BYTE = 2**25, 2**15, 2**11
MOST_VALUES, VALUES_A_ROW, VALUES_A_BYTE = 2**22, 2**14, 2**8  # the values of all columns, including values in lists
BATCH_BYTES = 2**26  # of rows decoded together
BATCH_ROWS = 1024
# Types of a pack's columns; timestamps, extensions and nested lists are not allowed.
PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_int32,
    pa.types.is_int64,
    pa.types.is_float64,
    pa.types.is_string,
)


class Table(NamedTuple):
    """A file's metadata and its rows."""

    about: dict[bytes, bytes]
    rows: Iterator[dict[str, Any]]
    most_values: int  # of all rows, those inside texts of JSON included, which the metadata does not count


def read_table(path: Path) -> Table:
    """The rows of a file, decoded while they are read.

    Raises UserError, also from the iterator, for a file that is not Parquet, has columns of types that no pack has, or
    would take more memory than its rows are worth.
    """
    with on_disk(f"read {path}"):
        size = path.stat().st_size
        try:
            file = pq.ParquetFile(path)
            schema = file.schema_arrow
        except (pa.ArrowException, ValueError) as error:
            raise UserError(f"{path} is not a file of `kvbench pack`: {_line(error)}") from error
    if unknown := [field.name for field in schema if not _known(field.type)]:
        raise UserError(f"{path}: column {unknown[0]!r} has type {schema.field(unknown[0]).type}, which no pack has")
    _check_size(path, file.metadata, size)
    return Table(dict(schema.metadata or {}), _rows(path, file, size), most_values(file.metadata, size))


def _known(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_plain(kind.field(index).type) for index in range(kind.num_fields))
    return _plain(kind)


def _plain(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in PLAIN)


def _check_size(path: Path, about: pq.FileMetaData, size: int) -> None:
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    values = sum(group.column(index).num_values for group in groups for index in range(about.num_columns))
    unpacked = sum(group.total_byte_size for group in groups)
    for what, amount, most in (
        ("rows", about.num_rows, size // ROW_ON_DISK),
        ("values", values, most_values(about, size)),
        ("bytes, decompressed", unpacked, most_bytes(about, size)),
    ):
        if not 0 <= amount <= most:
            raise UserError(f"{path} has {amount:,} {what}: a pack of its size has at most {most:,}")


def most_bytes(about: pq.FileMetaData, size: int) -> int:
    """Of a file of so many bytes on disk, decompressed."""
    return max(MOST_BYTES, BYTES_A_ROW * about.num_rows, BYTES_A_BYTE * size)


def most_values(about: pq.FileMetaData, size: int) -> int:
    """Of a file of so many bytes on disk, in all columns."""
    return max(MOST_VALUES, VALUES_A_ROW * about.num_rows, VALUES_A_BYTE * size)


def _rows(path: Path, file: pq.ParquetFile, size: int) -> Iterator[dict[str, Any]]:
    about, decoded = file.metadata, 0
    largest = max([about.row_group(index).total_byte_size for index in range(about.num_row_groups)], default=0)
    most = most_bytes(about, size)
    rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(largest, 1)))  # each can repeat all that its group has
    try:
        for batch in file.iter_batches(rows):
            decoded += batch.nbytes
            if decoded > most:
                raise UserError(f"{path} has rows of more than {most:,} bytes in all, decoded")
            yield from batch.to_pylist()
    except UserError:
        raise
    except (pa.ArrowException, ValueError, OverflowError, OSError) as error:
        raise UserError(f"{path} is not a file of `kvbench pack`: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
