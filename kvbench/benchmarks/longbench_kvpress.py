"""LongBench as kvpress evaluates it: kvpress splits contexts from questions, and uses the chat template throughout."""

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import pandas as pd

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.kvpress_rows import FIELDS, layouts, sample_of
from kvbench.benchmarks.longbench.tasks import AVERAGES, GROUPS, HEADERS, task_sets
from kvbench.benchmarks.near_copies import text_units
from kvbench.benchmarks.published_data import DataSet
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.backends import check_backend
from kvbench.metrics.longbench import METRICS, PACKAGES, needs_classes, score
from kvbench.utils.checked import Names, checked
from kvbench.utils.row_files import read_file
from kvbench.utils.tokenizer import Tokenizer

ROWS = FIELDS | {"answers": list[str], "all_classes": (list[str], None), "length": int}


@checked(prefix="benchmark.")
class KVPressLongBench(Benchmark):
    """LongBench's English tasks in the data set Xnhyacinth/LongBench (NVIDIA/kvpress at 8bb29b9, evaluation/).

    kvpress compresses the context with the instructions around it, and not the question: run it with question=hidden.
    Every prompt is in the chat template, is never cut, and ends with the beginning of its answer; answers are 20 tokens
    longer than LongBench's. Scores are LongBench's, of the answer without leading blanks.
    """

    scored_by = ("longbench",)

    tasks: Names = field(default_factory=lambda: ["english16"])
    data_dir: str | None = None
    repository: str = "Xnhyacinth/LongBench"
    revision: str = "main"
    name: str = "longbench_kvpress"
    rows: dict[str, list[dict[str, Any]]] = field(init=False, repr=False)

    metrics = ("score",)
    longest = None  # prompts are as long as their contexts

    task_sets = task_sets()
    headers = HEADERS

    def __post_init__(self) -> None:
        chosen = self.tasks_of(self.tasks)
        scored = {METRICS[task] for task in chosen}
        if "code_sim" in scored:
            check_backend()
        self.packages = tuple(module for module, metrics in PACKAGES.items() if scored & metrics)
        files = DataSet(self.repository, self.revision, self.data_dir).files({task: layouts(task) for task in chosen})
        self.rows = {
            task: [row for path in paths for row in read_file(path, _fields(task), filled=("context", "answers"))]
            for task, paths in files.items()
        }
        for task, rows in self.rows.items():
            if wrong := [row["task"] for row in rows if row["task"] != task]:
                raise UserError(f"{files[task][0]} has a row of {wrong[0]!r}, not of {task}")

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        return [sample for task, rows in self.rows.items() for sample in _samples(task, rows)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        meta = sample.meta
        return {"score": score(meta["task"], prediction.lstrip(), sample.answers, meta.get("all_classes"))}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        return breakdown(records, GROUPS, AVERAGES)


def _samples(task: str, rows: list[dict[str, Any]]) -> Iterator[Sample]:
    for number, (row, unit) in enumerate(zip(rows, text_units([row["context"] for row in rows]), strict=True), 1):
        about = {"length": row["length"], **_classes(task, row)}
        yield sample_of(row, f"{task}:{number}", row["answers"], unit, **about)


def _fields(task: str) -> dict[str, Any]:
    return ROWS | ({"all_classes": list[str]} if needs_classes(task) else {})


def _classes(task: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"all_classes": row["all_classes"]} if needs_classes(task) else {}
