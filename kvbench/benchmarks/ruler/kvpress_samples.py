"""kvpress's RULER: one set of samples for every model, as its leaderboard evaluates it."""

from collections.abc import Mapping
from dataclasses import field
from itertools import count
from typing import Any

import pandas as pd

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.kvpress_rows import FIELDS, layouts, sample_of
from kvbench.benchmarks.planned import PromptSize
from kvbench.benchmarks.published_data import DataSet
from kvbench.benchmarks.ruler.files import unit_of
from kvbench.benchmarks.ruler.tasks import GROUPS, HEADERS, MEANS, TASK_SETS, TASKS
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.ruler import CONTROL
from kvbench.utils.checked import Names, Positive, checked
from kvbench.utils.row_files import read_file
from kvbench.utils.tokenizer import Tokenizer

ROWS = FIELDS | {"answer": list[str]}
SAMPLES = 500  # of each task


@checked(prefix="benchmark.")
class KVPressRuler(Benchmark):
    """RULER's samples of the data set simonjegou/ruler: 13 tasks × 500, made with Llama-3.1-8B's tokenizer.

    Each row has a context, a question and the beginning of the answer; context and question are one turn of the chat.
    kvpress compresses the context alone: run it with question=hidden. Other models tokenise the same texts, so prompts
    are not exactly `length` tokens long. Scores are RULER's, except that control characters such as line ends are
    dropped, where RULER's code replaces each by a line end.
    """

    scored_by = ("ruler",)
    version = 2  # 1: a line end for each control character

    length: Positive = 4096  # tokens of Llama-3.1-8B: a configuration of the data set
    tasks: Names = field(default_factory=lambda: ["all"])
    data_dir: str | None = None
    repository: str = "simonjegou/ruler"
    revision: str = "main"
    name: str = "ruler_kvpress"
    rows: list[dict[str, Any]] = field(init=False, repr=False)

    metrics = ("score",)
    longest = None  # lengths are Llama-3.1-8B's

    task_sets = TASK_SETS
    task_means = MEANS
    headers = HEADERS

    @classmethod
    def prompt_sizes(cls, config: Mapping[str, Any]) -> dict[str, list[PromptSize]]:
        """Lengths are in tokens of Llama-3.1-8B, so other models may have more tokens."""
        return {
            task: [PromptSize(config["length"], TASKS[task].max_new_tokens, bounded=False)] * SAMPLES
            for task in cls.tasks_of(config["tasks"])
        }

    def __post_init__(self) -> None:
        chosen = self.tasks_of(self.tasks)
        layouts_of = {str(self.length): layouts(str(self.length))}
        (paths,) = DataSet(self.repository, self.revision, self.data_dir).files(layouts_of).values()
        rows = [row for path in paths for row in read_file(path, ROWS, filled=("context", "answer"))]
        available = {row["task"] for row in rows}
        if missing := [task for task in chosen if task not in available]:
            raise UserError(f"{paths[0]} has no row of {missing[0]}; the tasks there: {', '.join(sorted(available))}")
        self.rows = [row for row in rows if row["task"] in chosen]

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        numbers = {task: count() for task in TASKS}
        names = (f"{row['task']}-{self.length}-{next(numbers[row['task']])}" for row in self.rows)
        return [self._sample(row, name) for row, name in zip(self.rows, names, strict=True)]

    def _sample(self, row: dict[str, Any], name: str) -> Sample:
        unit = unit_of(row["task"], row["question"], row["answer"])
        return sample_of(row, name, row["answer"], unit, length=self.length)

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        joined = CONTROL.sub("", prediction.strip())
        return {"score": TASKS[sample.meta["task"]].score(joined, sample.answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        return breakdown(records, GROUPS, {"average": tuple(TASKS)})
