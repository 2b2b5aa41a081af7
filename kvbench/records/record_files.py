"""The files that hold the records of a run or of a pack."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvbench.errors import UserError
from kvbench.records.store import PACK, PATTERN, Read, read_lines, read_records
from kvbench.utils.extras import require


def files_in(folder: Path) -> list[Path]:
    """The files of records directly in a folder; none unless it is a run or a pack."""
    return sorted(path for name in (PATTERN, PACK) for path in folder.glob(name))


def read_file(path: Path) -> Read:
    """The whole records of a run's file or a pack's, and the lines that hold no record."""
    return read_pack(path) if path.name == PACK else read_records(path)


def read_pack(path: Path) -> Read:
    require(f"{path}, a pack,", "pyarrow")
    from kvbench.records.parquet_records import read_records

    return read_records(path)


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """The whole records of a run's file or a pack's, read one by one from a run's."""
    if path.name == PACK:
        yield from read_pack(path).records
    else:
        yield from (record for _, record in read_lines(path) if record)


def check_name(path: Path, folders: Sequence[str | Path]) -> None:
    """Raise UserError for an output in one of the folders under a name by which commands find records there."""
    inside = any(Path(folder).resolve() in path.resolve().parents for folder in folders)
    if inside and (path.name == PACK or path.match(PATTERN)):
        raise UserError(f"{path} would be read as records, which it would not hold: choose another name or folder")
