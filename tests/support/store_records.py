"""Records for tests of the store, and the bytes they are stored as."""

from pathlib import Path

from kvbench.records.store import RECORDS, Store, to_line
from tests.support import records


def record(i: int, size: int = 2000) -> dict:
    return records.record(key=f"k{i}", sample=f"s{i}", prediction=f"é\n{i}\u2028" + "x" * size, scores={"score": i / 7})


def line(made: dict) -> bytes:
    return to_line(made)


def write(folder: Path, count: int, size: int = 2000) -> Path:
    """Whatever of `count` records is missing; the file they are in."""
    with Store(folder) as opened:
        for i in range(count):
            if f"k{i}" not in opened.done:
                opened.append(record(i, size))
    return folder / RECORDS


def lines(count: int, size: int = 2000) -> bytes:
    return b"".join(line(record(i, size)) for i in range(count))
