"""Records on disk: one JSON line per sample and setting, appended and synced; nothing is lost or stored twice.

A folder has one file of records for each shard of its samples, `records.jsonl` for a run in one piece.

Written by hand, on flock and fsync: a JSON line that is cut short must be found, set aside and made again, and
`kvbench status` must see whether a process holds the lock without taking it, which filelock does not offer.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.errors import UserError, on_disk
from kvbench.records.schema import check_record, kind_of
from kvbench.utils.files import replacing
from kvbench.utils.links import held as held_in
from kvbench.utils.locks import held, holder, open_lock, take
from kvbench.utils.regular_files import open_regular

RECORDS = "records.jsonl"
PATTERN = "records*.jsonl"
PACK = "records.parquet"  # of `kvbench pack`
WRITTEN = (".lock*", "records*", "manifests*")  # of a run's folder: opened by name and written in place
SHARD = re.compile(r"\d+-of-\d+")
SURROGATES = re.compile("[\ud800-\udfff]")


def shard_label(shard: int, shards: int) -> str:
    """How a shard is shown to the user: "0-of-1" for a run in one piece."""
    return f"{shard}-of-{shards}"


def shard_name(shard: int, shards: int) -> str:
    """How a shard is named in file names: empty for a run in one piece."""
    return "" if shards == 1 else shard_label(shard, shards)


def records_name(shard: str) -> str:
    return f"records.{shard}.jsonl" if shard else RECORDS


def shard_of_file(path: Path) -> str:
    """The shard in the name of a file of records. Raises UserError for a name that no run gives."""
    shard = path.name.removeprefix("records").removesuffix(".jsonl").removeprefix(".")
    if records_name(shard) != path.name or (shard and not SHARD.fullmatch(shard)):
        raise UserError(f"{path} is no file of a run: move it out of the folder")
    return shard


def lock_path(folder: Path, shard: str) -> Path:
    return folder / f".lock{shard}"


def record_files(folder: Path) -> list[Path]:
    """Every file of records in a folder, in order of name."""
    return sorted(folder.glob(PATTERN))


def to_json(value: object) -> str:
    """JSON for UTF-8; ASCII where it has a lone surrogate, which JSON can escape but UTF-8 cannot hold."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if SURROGATES.search(text) else text


class Edited(ValueError):
    """A record that does not fit its checksum."""


def to_line(record: dict[str, Any]) -> bytes:
    """A record as it is stored, with a checksum as its last field."""
    text = to_json(record).encode()
    return text[:-1] + b', "checksum": "%s"}\n' % checksum(text).encode()


def checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def without_checksum(record: dict[str, Any], line: bytes = b"") -> dict[str, Any]:
    """A record as it was before `to_line`; with its `line`, it need not be written as JSON again.

    Raises Edited if it does not fit its checksum. Records of version 0.1.0 have none.
    """
    rest = {name: value for name, value in record.items() if name != "checksum"}
    written = record.get("checksum")
    if written is not None and written not in _checksums(line, rest):
        raise Edited("changed after it was written")
    return rest


def _checksums(line: bytes, record: dict[str, Any]) -> Iterator[str]:
    """The checksum of a line by `to_line`, and of the record, for a line whose layout alone changed."""
    yield checksum(line[: -len(b', "checksum": "0123456789abcdef"}\n')] + b"}")
    yield checksum(to_json(record).encode())


def parse(line: bytes) -> dict[str, Any]:
    """The record in a line of a file, without its checksum.

    Raises ValueError or RecursionError if the line holds no record, Edited if the record does not fit its checksum.
    """
    if not line.endswith(b"\n"):
        raise ValueError("cut short")  # even if the remaining line is JSON
    record = without_checksum(check_record(json.loads(line)), line)
    return record if "kind" in record else {"key": record["key"], "kind": kind_of(record), **record}


def read_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line of a file with its record; None for a line that was torn by a kill, damaged or edited."""
    with on_disk(f"read {path}"), open_regular(path) as file:
        for line in file:
            try:
                yield line, parse(line)
            except (ValueError, RecursionError):
                yield line, None


class Read(NamedTuple):
    records: list[dict[str, Any]]  # whole ones
    torn: list[bytes]  # lines without a record, or with one that was changed


def read_records(path: Path) -> Read:
    """The contents of a file of records."""
    records, torn = [], []
    for line, record in read_lines(path) if path.exists() else ():
        torn.append(line) if record is None else records.append(record)
    return Read(records, torn)


def key_in(line: bytes) -> str | None:
    """The key of a damaged line's record, where it can still be read."""
    match = re.search(rb'"key": "([^"\\]+)"', line)
    return match and match[1].decode(errors="replace")


def keys_in(folder: Path) -> set[str]:
    """The keys of all whole records in a folder, whichever shard made them."""
    return {record["key"] for record in records_of(folder)}


def records_of(folder: Path) -> Iterator[dict[str, Any]]:
    """All whole records in a folder, whichever shard made them."""
    return (record for path in record_files(folder) for _, record in read_lines(path) if record)


class Store:
    """The records of one shard in a folder, open for writing by one process at a time."""

    def __init__(self, folder: Path, shard: str = ""):
        """Take the shard's lock, set its damaged lines aside, and read the keys of all shards.

        Raises UserError when another process writes there or splits the samples into another number of shards, or the
        folder cannot be read and written, or has a link to another place where a run writes.
        """
        self.path = folder / records_name(shard)
        self.torn = self.path.with_suffix(".torn")
        self.done: set[str] = set()
        self.samples: set[str] = set()  # ids of all samples that had a record when the store was opened
        self.made = 0  # records appended since
        with on_disk(f"write records to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            check_written(folder)
            self._lock = open_lock(lock_path(folder, shard))
            try:
                take(self._lock)
                if other := _other_split(folder, shard):
                    raise UserError(
                        f"another kvbench is writing {other} of {folder}, which splits the samples differently: wait "
                        "for it or use the same shards="
                    )
                self.set_aside = self._recover()
                # Only now: until then another process may replace this file by a mended one.
                self._file = self.path.open("ab", buffering=0)
                _sync_folder(folder)
            except BaseException as error:
                by = f"{holder(self._lock)} holds {self._lock.name}"
                self._lock.close()
                if isinstance(error, BlockingIOError):
                    raise UserError(f"another kvbench is writing {self.path}: wait for it or stop it ({by})") from None
                raise

    def _recover(self) -> int:
        """Read the keys of all shards and set aside this shard's damaged lines; returns their number."""
        damaged = set()
        for path in record_files(self.path.parent):
            for number, (_, record) in enumerate(read_lines(path)):
                if record is not None:
                    self.done.add(record["key"])
                    self.samples.add(record["sample"])
                elif path == self.path:
                    damaged.add(number)
        if damaged:
            set_aside(self.path, self.torn, damaged)
        return len(damaged)

    def append(self, record: dict[str, Any]) -> None:
        """Write one record; when this returns, it is on the disk.

        Raises UserError where it cannot be written; then the file is unchanged, and the store remains usable.
        """
        if record["key"] in self.done:
            raise ValueError(f"record {record['key']} already exists")
        with on_disk(
            f"write records to {self.path}", "; all earlier ones are safe, and the same command continues from there"
        ):
            self._write(to_line(record))
        if not self._in_place():  # the line was written to the file at its new place
            raise UserError(f"{self.path} was moved or removed while kvbench was writing it")
        self.done.add(record["key"])
        self.made += 1

    def _write(self, line: bytes) -> None:
        """The whole line, synced, or nothing of it."""
        start = os.fstat(self._file.fileno()).st_size
        rest = memoryview(line)
        try:
            while rest:  # a nearly full disk may write a part of it
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except BaseException:
            with suppress(OSError):  # the next Store sets a torn line aside
                os.ftruncate(self._file.fileno(), start)
            raise

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def close(self) -> None:
        self._file.close()
        self._lock.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_written(folder: Path) -> None:
    """Raise UserError for a link out of a folder that somebody else may have made, through which a run would write."""
    for path in (path for pattern in WRITTEN for path in folder.glob(pattern)):
        if path.is_symlink():
            held_in(path, folder)


def set_aside(path: Path, torn: Path, numbers: Collection[int]) -> None:
    """Move lines of a file, numbered from 0, to the end of `torn`; a kill in between loses no line."""
    with torn.open("ab") as aside:
        aside.writelines(line.rstrip(b"\n") + b"\n" for line in _lines(path, lambda number: number in numbers))
        aside.flush()
        os.fsync(aside.fileno())
    with replacing(path) as work, work.open("wb") as file:
        file.writelines(_lines(path, lambda number: number not in numbers))


def _lines(path: Path, wanted: Callable[[int], bool]) -> Iterator[bytes]:
    with open_regular(path) as file:
        yield from (line for number, line in enumerate(file) if wanted(number))


def _other_split(folder: Path, shard: str) -> str:
    """The records file of a living process that splits the samples into another number of shards; "" for none."""
    for path in sorted(folder.glob(".lock*")):
        other = path.name.removeprefix(".lock")
        if (not other or SHARD.fullmatch(other)) and _shards(other) != _shards(shard) and held(path):
            return records_name(other)
    return ""


def _shards(shard: str) -> str:
    return shard.partition("-of-")[2] or "1"


def _sync_folder(folder: Path) -> None:
    """Make new names in a folder outlive a power cut, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
