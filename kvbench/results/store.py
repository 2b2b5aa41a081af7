"""Records on disk: one JSON line per sample and setting, appended and synced; nothing lost, nothing twice.

A folder has one file of records for each shard of its samples, `records.jsonl` where there was one process.
"""

import json
import os
from pathlib import Path

from kvbench.errors import UserError
from kvbench.locks import take

RECORDS = "records.jsonl"
TORN = "records.torn"


def records_name(shard: str = "") -> str:
    return f"records.{shard}.jsonl" if shard else RECORDS


def lock_path(folder: Path, shard: str = "") -> Path:
    return folder / f".lock{shard}"


def record_files(folder: Path) -> list[Path]:
    """Every file of records in a folder, in order of name."""
    return sorted(folder.glob("records*.jsonl"))


def read_records(path: Path) -> tuple[list[dict], list[bytes]]:
    """The whole records of a file, and the lines that are none (torn by a kill, or damaged)."""
    records, torn = [], []
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        try:
            if not line.endswith(b"\n"):
                raise ValueError("no line end: the write was cut short")
            record = json.loads(line)
            if not isinstance(record, dict) or "key" not in record:
                raise ValueError("not a record")
        except ValueError:
            torn.append(line)
        else:
            records.append(record)
    return records, torn


class Store:
    """The records of one shard in a folder, open for writing by one process at a time."""

    def __init__(self, folder: Path, shard: str = ""):
        """Take the shard's lock, set its damaged lines aside, and learn what is done in any shard.

        Raises UserError when another process is writing there or the folder cannot be written.
        """
        self.path = folder / records_name(shard)
        self.torn = self.path.with_suffix(".torn")
        self.set_aside = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_path(folder, shard).open("w")
            self._file = self.path.open("ab")
        except OSError as error:
            raise UserError(f"cannot write records to {folder}: {error.strerror}") from error
        try:
            take(self._lock)
        except BlockingIOError:
            raise UserError(f"another kvbench is writing {self.path}: wait for it or stop it") from None
        self._recover()

    def _recover(self) -> None:
        records, torn = read_records(self.path)
        if torn:
            with self.torn.open("ab") as aside:
                aside.writelines(line.rstrip(b"\n") + b"\n" for line in torn)
                _sync(aside)
            whole = self.path.with_suffix(".tmp")
            with whole.open("wb") as file:
                file.writelines(_line(record) for record in records)
                _sync(file)
            whole.replace(self.path)
            self._file.close()
            self._file = self.path.open("ab")
        self.set_aside = len(torn)
        others = [read_records(path)[0] for path in record_files(self.path.parent) if path != self.path]
        self.done = {record["key"] for part in [records, *others] for record in part}

    def append(self, record: dict) -> None:
        """Write one record; when this returns, it is on the disk."""
        if record["key"] in self.done:
            raise ValueError(f"record {record['key']} is there already")
        self._file.write(_line(record))
        _sync(self._file)
        self.done.add(record["key"])

    def close(self) -> None:
        self._file.close()
        self._lock.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc) -> None:
        self.close()


def _line(record: dict) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _sync(file) -> None:
    file.flush()
    os.fsync(file.fileno())
