"""Rows of RULER's samples on the disk: kvbench's cache, and the official layout for import and export."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.ruler.tasks import TASKS
from kvbench.errors import UserError
from kvbench.utils.files import write_atomically
from kvbench.utils.jsonl import read_rows
from kvbench.utils.links import held
from kvbench.utils.regular_files import read_text

_FIELDS = {"index": int, "input": str, "outputs": list[str], "length": int}


def cached(path: Path, count: int, make: Callable[[], Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The first `count` rows of a cached file, generated if it is missing. Its first line is a hash of the rest."""
    text = _intact(path)
    rows = [] if text is None else [json.loads(line) for line in text.splitlines()[:count]]
    if len(rows) < count:
        rows = list(make())
        text = lines(rows)
        write_atomically(path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    return rows


def _intact(path: Path) -> str | None:
    """The text after the first line; None if the first line is not its hash."""
    try:
        sha256, _, text = read_text(path).partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if hashlib.sha256(text.encode()).hexdigest() == sha256 else None


def lines(rows: Iterable[dict[str, Any]]) -> str:
    """The text of a validation.jsonl, as the official generator writes it."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def export(folder: Path, length: int, name: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Write LENGTH/TASK/validation.jsonl."""
    path = folder / str(length) / name / "validation.jsonl"
    write_atomically(path, lines(rows))
    return path


def find(folder: str, lengths: Sequence[int], names: Sequence[str], all_required: bool) -> dict[tuple[int, str], Path]:
    """The file of every task at every length in a folder of the official layout.

    A file is LENGTH/TASK/validation.jsonl, LENGTH/data/TASK/validation.jsonl or LENGTH/TASK.jsonl; with one length the
    folder LENGTH may be left out. With `all_required` every task must have a file, else at least one task.
    """
    root = Path(str(folder))
    if not root.is_dir():
        raise UserError(f"benchmark.data_dir={folder!r} is not a folder")
    paths = {}
    for length in lengths:
        places = [root / str(length), root / str(length) / "data", *([root] if len(lengths) == 1 else [])]
        for name in TASKS:
            files = [place / file for place in places for file in (f"{name}/validation.jsonl", f"{name}.jsonl")]
            if path := next((file for file in files if file.is_file()), None):
                paths[length, name] = held(path, root)
    missing = [(length, name) for length in lengths for name in names if (length, name) not in paths]
    if missing and (all_required or len(missing) == len(lengths) * len(names)):
        length, name = missing[0]
        available = ", ".join(f"{length}/{name}" for length, name in paths) or "none"
        raise UserError(
            f"benchmark.data_dir={folder!r} has neither {length}/{name}/validation.jsonl nor {length}/{name}.jsonl; "
            f"RULER's tasks found there at benchmark.lengths={list(lengths)}: {available}"
        )
    return {key: path for key, path in paths.items() if key[1] in names}


def read(path: Path, name: str, length: int, count: int) -> list[dict[str, Any]]:
    """The first `count` rows of a validation.jsonl, each with its answer_prefix.

    Early versions of the generator left the prefix at the end of the input: it is moved from there.
    """
    task = TASKS[name]

    def check(row: dict[str, Any]) -> None:
        if not isinstance(row.get("answer_prefix", ""), str):
            raise ValueError("field 'answer_prefix' is not a text")
        if row["length"] > length:
            raise ValueError(f"its length is {row['length']}, over the {length} of benchmark.lengths")

    rows = read_rows(path, _FIELDS, filled=("input", "outputs"), check=check)[:count]
    for row in rows:
        if "answer_prefix" not in row:
            tail = question(name, row["input"])
            cut = tail.rfind(task.prefix)
            row["answer_prefix"] = tail[cut:] if cut >= 0 else ""
            row["input"] = row["input"].removesuffix(row["answer_prefix"])
    return rows


def question(name: str, text: str) -> str:
    """The question at the end of an input: its last lines, as many as the task says."""
    separator, pieces = TASKS[name].tail
    return separator.join(text.rsplit(separator, pieces)[-pieces:])


def unit_of(name: str, asked: str, answers: Sequence[str]) -> str:
    """The `unit` of a sample from its question and answers, which are all that a row of a file has.

    With needles it is what the generator drew: the keys in the question and the values. The generator begins each task
    and length with the same random numbers, so that most needles are drawn again, often at nearly the same depths, at
    other lengths and by other tasks. Of a question on documents it is the question. Other tasks draw each sample anew:
    "".
    """
    kind = TASKS[name].kind
    if kind == "niah":
        return text_unit("\n".join([asked.strip(), *answers]))
    return text_unit(asked) if kind == "qa" else ""
