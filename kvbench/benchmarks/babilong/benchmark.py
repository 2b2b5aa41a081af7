"""BABILong as a benchmark."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import pandas as pd

from kvbench.benchmarks.babilong import prompts
from kvbench.benchmarks.babilong.stories import stories
from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.published_data import DataSet, select
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.babilong import LABELS, score
from kvbench.utils.checked import Names, checked
from kvbench.utils.row_files import read_file
from kvbench.utils.tokenizer import Tokenizer

NEW_TOKENS = 20
LENGTHS = tuple("0k 1k 2k 4k 8k 16k 32k 64k 128k 256k 512k 1M 10M".split())
LEADERBOARD = ("qa1", "qa2", "qa3", "qa4", "qa5")  # the leaderboard shows their mean for each length
TASKS = {"all": tuple(LABELS), "qa1-5": LEADERBOARD, **{name: (name,) for name in LABELS}}
FIELDS = {"input": str, "question": str, "target": str}
# Files with a task's rows of a length: of the data sets on the hub, of their clones, of save_to_disk.
LAYOUTS = (
    "data/{task}/{length}.json {task}/{length}.json {length}/{task}.jsonl {task}/{length}.jsonl "
    "{length}/{task}-*.parquet {task}/{length}-*.parquet {length}/{task}/data-*.arrow"
).split()


@checked(prefix="benchmark.")
class BABILong(Benchmark):
    """BABILong (Kuratov et al. 2024) with the official prompts, answers of 20 tokens and metric.

    A length is the data set's name for it (4k), in tokens of GPT-2; 0k has the facts alone. A task in tables is a
    question type at a length, "qa1 4k". No prompt is cut: the longest must fit the model.
    """

    scored_by = ("babilong",)

    tasks: Names
    lengths: Names
    data_dir: str | None = None
    repository: str = "RMT-team/babilong"
    revision: str = "main"
    prompts_file: str | None = None
    name: str = "babilong"
    chosen: list[str] = field(init=False)
    rows: dict[str, list[dict[str, Any]]] = field(init=False, repr=False)

    metrics = ("score",)
    longest = None  # lengths are GPT-2's

    def __post_init__(self) -> None:
        self.chosen = select(self.tasks, TASKS, "task in benchmark.tasks")
        self.lengths = select(self.lengths, {name: (name,) for name in LENGTHS}, "length in benchmark.lengths")
        self.prompts = prompts.load(self.chosen, self.prompts_file)
        layouts = {
            f"{task} {length}": [layout.format(task=task, length=length) for layout in LAYOUTS]
            for length in self.lengths
            for task in self.chosen
        }
        files = DataSet(self.repository, self.revision, self.data_dir).files(layouts)
        self.rows = {
            name: [row for path in paths for row in read_file(path, FIELDS, filled=("input", "target"))]
            for name, paths in files.items()
        }

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        first_of = {task: stories(self._texts(task)) for task in self.chosen}
        return [
            sample
            for name, rows in self.rows.items()
            for sample in self._samples(name, rows, first_of[name.split()[0]])
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        meta = sample.meta
        return {"score": score(meta["qa"], prediction, sample.answers[0], meta["asked"])}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """One row per question type and length; for each length the leaderboard's mean and the mean of the others."""
        ranges = {"qa1 to qa5": LEADERBOARD, "qa6 to qa20": tuple(LABELS)[len(LEADERBOARD) :]}
        groups = {
            f"{name} {length}": [f"{task} {length}" for task in members]
            for length in LENGTHS
            for name, members in ranges.items()
        }
        return breakdown(records, groups, None)

    def _texts(self, task: str) -> Iterator[dict[int, str]]:
        """The texts of the task's rows by their numbers, at each length."""
        for length in self.lengths:
            yield {number: row["input"] for number, row in enumerate(self.rows[f"{task} {length}"], 1)}

    def _samples(self, name: str, rows: list[dict[str, Any]], first_of: Mapping[int, int]) -> Iterator[Sample]:
        task, length = name.split()
        for number, row in enumerate(rows, 1):
            prompt, question = self.prompts[task].fill(row["input"], row["question"])
            yield Sample(
                id=f"{task}-{length}-{number}",
                prompt=prompt,
                answers=(row["target"],),
                max_new_tokens=NEW_TOKENS,
                question=question,
                unit=f"{task} {first_of[number]}",
                meta={"task": name, "qa": task, "length": length, "asked": row["question"]},
            )
