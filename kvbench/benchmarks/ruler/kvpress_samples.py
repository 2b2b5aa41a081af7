"""kvpress's RULER: one set of samples for every model, as its leaderboard evaluates it."""

from dataclasses import field
from itertools import count
from typing import Any, ClassVar

import pandas as pd

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.published_data import DataSet
from kvbench.benchmarks.ruler.tasks import GROUPS, TASKS, select
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown
from kvbench.utils.checked import Names, Positive, checked
from kvbench.utils.row_files import read_file
from kvbench.utils.tokenizer import Tokenizer

FIELDS = {
    "context": str,
    "question": str,
    "answer_prefix": str,
    "task": str,
    "answer": list[str],
    "max_new_tokens": int,
}
# Where the rows of a length are: in the data set on the hub, in its cache, in a folder of save_to_disk, as text.
LAYOUTS = ("{length}/test-*.parquet", "{length}/*test*.parquet", "{length}/data-*.arrow", "{length}.jsonl")


@checked(prefix="benchmark.")
class KVPressRuler(Benchmark):
    """RULER's samples of the data set simonjegou/ruler: 13 tasks × 500, made with Llama-3.1-8B's tokenizer.

    Each row has a context, a question and the beginning of the answer; context and question are one turn of the
    chat. kvpress compresses the context alone: run it with question=hidden. Other models tokenise the same texts,
    so their lengths differ from `length`. Scores are RULER's.
    """

    scored_by: ClassVar[tuple[str, ...]] = ("ruler",)

    length: Positive = 4096  # tokens of Llama-3.1-8B: a configuration of the data set
    tasks: Names = field(default_factory=lambda: ["all"])
    data_dir: str | None = None
    repository: str = "simonjegou/ruler"
    revision: str = "main"
    name: str = "ruler_kvpress"
    rows: list[dict[str, Any]] = field(init=False, repr=False)

    metrics = ("score",)
    longest = None  # lengths are Llama-3.1-8B's

    def __post_init__(self) -> None:
        chosen = select(self.tasks)
        layouts = [layout.format(length=self.length) for layout in LAYOUTS]
        (paths,) = DataSet(self.repository, self.revision, self.data_dir).files({str(self.length): layouts}).values()
        rows = [row for path in paths for row in read_file(path, FIELDS, filled=("context", "answer"))]
        there = {row["task"] for row in rows}
        if missing := [task for task in chosen if task not in there]:
            raise UserError(f"{paths[0]} has no row of {missing[0]}; the tasks there: {', '.join(sorted(there))}")
        self.rows = [row for row in rows if row["task"] in chosen]

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        numbers = {task: count() for task in TASKS}
        return [self._sample(row, next(numbers[row["task"]])) for row in self.rows]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {"score": TASKS[sample.meta["task"]].score(prediction, sample.answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        return breakdown(records, GROUPS, {"average": tuple(TASKS)})

    def _sample(self, row: dict[str, Any], number: int) -> Sample:
        return Sample(
            id=f"{row['task']}-{self.length}-{number}",
            prompt=row["context"] + row["question"],
            answers=tuple(row["answer"]),
            max_new_tokens=row["max_new_tokens"],
            question=row["question"],
            prefix=row["answer_prefix"],
            meta={"task": row["task"], "length": self.length, "origin": "kvpress"},
        )
