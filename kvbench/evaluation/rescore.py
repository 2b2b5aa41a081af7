"""LongBench predictions on disk, in the official form or in a run's records, scored again."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from kvbench.benchmarks.longbench.benchmark import BUCKETS, LongBench, LongBenchE, bucket
from kvbench.benchmarks.longbench.tasks import LONGBENCH_E, TASKS
from kvbench.errors import UserError, no_folder
from kvbench.metrics.aggregate import range_score, task_score
from kvbench.metrics.longbench import check_answers, companions, needs_classes, score
from kvbench.records.store import RECORDS, record_files, without_checksum
from kvbench.utils.jsonl import FieldType, read_rows
from kvbench.utils.links import held
from kvbench.utils.regular_files import read_text

RESULT = "result.json"
OFFICIAL = (LongBench.name, LongBenchE.name)  # kvpress's rows and LongBench v2 have scores of their own
# TASK.jsonl, TASK_e.jsonl for LongBench-E, with any suffix that begins with - or a dot
_FILE = re.compile(rf"({'|'.join(sorted(TASKS, key=len, reverse=True))})(_e)?([-.].*)?\.jsonl")

_RECORD = {"setting": str, "task": str, "sample": str, "prediction": str, "answers": list[str], "scores": dict}

# A task, or a task and one of LongBench-E's ranges of length as "qasper 0-4k": a row of the table.
Row = str


@dataclass(frozen=True)
class Scored:
    """A prediction's scores, and the fields by which tables group them."""

    setting: str
    task: str
    bucket: str | None  # LongBench-E's range of length
    sample: str
    scores: Mapping[str, float]
    stored: Mapping[str, float] | None = None  # the scores in a record
    parameters: str = "{}"  # a record's, as JSON: several sets of them may have one setting's name
    ratio: float | None = None  # a record's, as its budget: two of them may have one name
    budget: int | None = None

    @property
    def row(self) -> Row:
        return row_name(self.task, self.bucket)


def row_name(task: str, part: str | None) -> Row:
    return task if part is None else f"{task} {part}"


def find(folder: Path, extended: bool) -> tuple[dict[str, Path], bool]:
    """The files of a folder that are named after tasks, and whether they are LongBench-E's.

    LongBench-E's are the files TASK_e, all files under a folder pred_e (the official place), or all if `extended`.
    """
    if not folder.is_dir():
        raise no_folder(folder)
    named = [(match, path) for path in sorted(folder.iterdir()) if (match := _FILE.fullmatch(path.name))]
    if not named:
        raise UserError(
            f"{str(folder)!r} has no LongBench predictions (and no {RECORDS}): "
            f"a file is TASK.jsonl or TASK_e.jsonl, with TASK one of {', '.join(TASKS)}"
        )
    extended = extended or "pred_e" in folder.resolve().parts[-2:]
    marked = {match[2] is not None for match, _ in named}
    if len(marked) == 2 and not extended:
        raise UserError(
            f"{str(folder)!r} has predictions of LongBench and of LongBench-E (TASK_e): put them into separate folders"
        )
    extended = extended or True in marked
    files: dict[str, Path] = {}
    for match, path in named:
        task = match[1]
        if task in files:
            raise UserError(f"{files[task].name} and {path.name} in {str(folder)!r} are both for {task}: keep one")
        if extended and task not in LONGBENCH_E:
            raise UserError(f"{path}: LongBench-E has no task {task!r}, only {', '.join(LONGBENCH_E)}")
        files[task] = held(path, folder)
    return {task: files[task] for task in TASKS if task in files}, extended


def from_files(files: Mapping[str, Path], extended: bool) -> list[Scored]:
    """Score rows with pred, answers, all_classes (trec and lsht) and, for LongBench-E, length."""
    rows = [
        (task, number, row)  # all read and checked before the first is scored
        for task, path in files.items()
        for number, row in enumerate(_rows(task, path, extended), 1)
    ]
    return [
        Scored(
            "score",
            task,
            bucket(row["length"]) if extended else None,
            f"{task}:{number}",
            {"score": score(task, row["pred"], row["answers"], row.get("all_classes"))},
        )
        for task, number, row in _progress(rows)
    ]


def _rows(task: str, path: Path, extended: bool) -> list[dict[str, Any]]:
    fields: dict[str, FieldType] = {"pred": str, "answers": list[str]}
    fields |= {"length": int} if extended else {}
    fields |= {"all_classes": list[str]} if needs_classes(task) else {}
    return read_rows(path, fields, check=lambda row: check_answers(task, row["answers"]))


def from_records(folder: Path) -> list[Scored]:
    """Score the predictions in a run's records of LongBench or LongBench-E, of all shards.

    Raises UserError for a record of another benchmark, and for one that does not match its checksum.
    """

    def check(record: dict[str, Any]) -> None:
        if record["benchmark"] not in OFFICIAL:
            which = f"only LongBench's predictions ({', '.join(OFFICIAL)}) can be scored again"
            raise ValueError(f"a record of {record['benchmark']!r}: {which}")
        without_checksum(record)

    paths = [held(path, folder) for path in record_files(folder)]
    for path in paths:
        read_rows(
            path, {"benchmark": str}, check=check
        )  # before other fields are asked for, which other benchmarks' records lack
    records: dict[object, dict[str, Any]] = {}
    for record in (record for path in paths for record in read_rows(path, _RECORD)):
        records.setdefault(record.get("key", len(records)), record)  # of copies the first
    return [_from_record(record) for record in _progress([*records.values()])]


def _from_record(record: Mapping[str, Any]) -> Scored:
    task, prediction, answers = record["task"], record["prediction"], record["answers"]
    scores = {"score": score(task, prediction, answers, record.get("all_classes"))}
    scores |= companions(task, prediction, answers)
    about = record["setting"], task, record.get("bucket"), record["sample"]
    of_setting = str(record.get("parameters", "{}")), record.get("ratio"), record.get("budget")
    return Scored(*about, scores, record["scores"], *of_setting)


def official_means(scored: Sequence[Scored]) -> dict[Row, float]:
    """The scores of one setting's rows, 0 to 100 in two digits, added up and rounded as in the official code."""
    values: dict[tuple[Row, str | None], list[float]] = {}
    for prediction in scored:
        values.setdefault((prediction.row, prediction.bucket), []).append(prediction.scores["score"])
    return {row: task_score(scores) if part is None else range_score(scores) for (row, part), scores in values.items()}


def official_form(scored: Sequence[Scored]) -> dict[str, float | dict[str, float | None]]:
    """The scores of one setting as the official result.json has them.

    A task of LongBench-E has an object with a score per range: null for a range without samples, where eval.py writes
    NaN, which is no JSON.
    """
    means = official_means(scored)
    extended = {prediction.task for prediction in scored if prediction.bucket}
    return {
        task: {part: means.get(row_name(task, part)) for part in BUCKETS} if task in extended else means[task]
        for task in dict.fromkeys(prediction.task for prediction in scored)
    }


def published(folder: Path) -> dict[Row, float]:
    """The scores in the folder's result.json; {} without that file.

    Raises UserError where it is not in the official form.
    """
    path = held(folder / RESULT, folder)
    if not path.is_file():
        return {}
    try:
        result = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON in UTF-8: {error}") from error
    if not isinstance(result, dict):
        raise UserError(f"{path} is not an object with a score for each task")
    scores = {}
    for task, value in result.items():
        for part, number in value.items() if isinstance(value, dict) else [(None, value)]:
            if isinstance(number, bool) or not isinstance(number, int | float | None):
                raise UserError(f"{path}: the score of {row_name(task, part)!r} is {number!r}, not a number")
            if number is not None and number == number:  # NaN: a range without samples
                scores[row_name(task, part)] = float(number)
    return scores


def _progress(items: Sequence[Any]) -> Iterable[Any]:
    """The items, with a progress bar on stderr if it is a terminal."""
    console = Console(stderr=True)
    return track(items, "scoring", console=console, transient=True, disable=not console.is_terminal)
