"""Records in a Parquet file, which gives them back exactly: every field, its type and its place.

A column of numbers, texts, lists of these, or objects with the same keys has the type of its values; any other column
is JSON text. Records have different fields: the column FIELDS has the number of a record's list of names in the file's
metadata.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.errors import UserError, on_disk
from kvbench.records.bounded_parquet import read_table
from kvbench.records.schema import check_record
from kvbench.records.store import SURROGATES, Read, checksum, to_json
from kvbench.utils.files import replacing
from kvbench.utils.text import in_one_line

FIELDS = "_fields"
META = b"kvbench"
VERSION = 1
LARGEST = 2**63


def write_records(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """The records with the checksums that their lines have in a run's folder."""
    sealed = [record | {"checksum": checksum(to_json(record).encode())} for record in records]
    layouts = list(dict.fromkeys(map(tuple, sealed)))
    number = {layout: index for index, layout in enumerate(layouts)}
    arrays, texts = {FIELDS: pa.array([number[tuple(record)] for record in sealed], pa.int32())}, []
    for name in dict.fromkeys(name for layout in layouts for name in layout):
        if (kind := type_of([record[name] for record in sealed if name in record])) is None:
            texts.append(name)
            # json escapes lone surrogates
            values = [json.dumps(record[name]) if name in record else None for record in sealed]
            arrays[name] = pa.array(values, pa.string())
        else:
            arrays[name] = pa.array([record.get(name) for record in sealed], kind)
    about = json.dumps({"version": VERSION, "layouts": layouts, "json": texts})
    table = pa.table(arrays).replace_schema_metadata({META: about})
    with on_disk(f"write {path}"), replacing(path) as work:
        pq.write_table(table, work, compression="zstd", compression_level=9)


def read_records(path: Path) -> Read:
    """The whole records of a file, and lines for rows that do not fit their checksum or are no records.

    Raises UserError for a file that `write_records` did not write.
    """
    records, damaged = [], []
    for record in stored(path):
        written = record.pop("checksum", None)
        text = to_json(record).encode()
        try:
            if written != checksum(text):
                raise ValueError("changed after it was written")
            records.append(check_record(record))
        except ValueError:
            damaged.append(text[:-1] + f', "checksum": "{written}"}}\n'.encode())
    return Read(records, damaged)


def stored(path: Path) -> Iterator[dict[str, Any]]:
    """The records with their checksums, as the file has them."""
    about, rows, most = read_table(path)
    inside = 0  # values of JSON texts, each of which takes more memory than its letters
    try:
        layouts, texts = layouts_of(path, about)
        for row in rows:
            names = layouts[row[FIELDS]]
            inside += sum(row[name].count(mark) for name in names if name in texts for mark in "[{,")
            if inside > most:
                raise UserError(f"{path} has more than {most:,} values in texts of JSON, which no pack of its size has")
            yield {name: json.loads(row[name]) if name in texts else row[name] for name in names}
    except UserError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise UserError(
            f"{path} is not a file of `kvbench pack`: {type(error).__name__}: {in_one_line(error)}"
        ) from error


class Layouts(NamedTuple):
    """How records are laid out in columns."""

    layouts: list[list[str]]  # the fields of records, by the number in FIELDS
    texts: frozenset[str]  # columns of JSON texts


def layouts_of(path: Path, about: Mapping[bytes, bytes]) -> Layouts:
    """The layouts in a file's metadata. UserError for another version, KeyError and its kin for other data."""
    node = json.loads(about[META])
    if node["version"] != VERSION:
        raise UserError(f"{path} has version {node['version']!r} of packs; this kvbench reads {VERSION}")
    if any(len({*layout}) < len(layout) for layout in node["layouts"]):  # each row would be made of all these names
        raise ValueError("a layout has a field twice")
    return Layouts(node["layouts"], frozenset(node["json"]))


def type_of(values: Sequence[Any]) -> pa.DataType | None:
    """The type of a column that holds these values exactly, None among them; None where only JSON does."""
    values = [value for value in values if value is not None]
    kinds = {type(value) for value in values}
    if not values:
        return pa.null()
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    if kind is bool:
        return pa.bool_()
    if kind is int:
        return pa.int64() if all(-LARGEST <= value < LARGEST for value in values) else None
    if kind is float:
        return pa.float64()
    if kind is str:
        return None if any(map(SURROGATES.search, values)) else pa.string()
    if kind is list:
        inner = type_of([item for value in values for item in value])
        return None if inner is None or pa.types.is_nested(inner) else pa.list_(inner)
    return _struct(values)


def _struct(values: Sequence[dict[str, Any]]) -> pa.DataType | None:
    """Of objects that all have the same keys in the same order."""
    names = tuple(values[0])
    if not names or any(tuple(value) != names for value in values):
        return None
    inner = [type_of([value[name] for value in values]) for name in names]
    if any(kind is None or pa.types.is_nested(kind) for kind in inner):
        return None
    return pa.struct(list(zip(names, inner, strict=True)))
