"""kvpress's RULER: one set of samples for every model, as its leaderboard evaluates it."""

from dataclasses import field

import pandas as pd
from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.ruler import kvpress_rows
from kvbench.benchmarks.ruler.tasks import GROUPS, TASKS, select
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.ruler import string_match_all, string_match_part
from kvbench.utils.checked import Names, Positive, checked


@checked(prefix="benchmark.")
class KVPressRuler(Benchmark):
    """RULER's samples of the data set simonjegou/ruler: 13 tasks × 500, made with Llama-3.1-8B's tokenizer.

    Each row has a context, a question and the beginning of the answer; context and question are one turn of the
    chat. kvpress compresses the context alone: run it with question=hidden. Other models tokenise the same texts,
    so their lengths differ from `length`. Scores are RULER's.
    """

    length: Positive = 4096  # tokens of Llama-3.1-8B: a configuration of the data set
    tasks: Names = field(default_factory=lambda: ["all"])
    path: str | None = None
    repository: str = "simonjegou/ruler"
    revision: str = "main"
    name: str = "ruler_kvpress"
    chosen: list[str] = field(init=False)

    metrics = ("score",)

    def __post_init__(self):
        self.chosen = select(self.tasks)

    @property
    def longest(self) -> None:
        return None  # depends on the model's tokenizer

    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
        rows = (
            kvpress_rows.from_hub(self.repository, self.length, self.revision)
            if self.path is None
            else kvpress_rows.from_file(self.path)
        )
        rows = rows[rows["task"].isin(self.chosen)]
        numbers = rows.groupby("task").cumcount()
        return [self._sample(row, number) for row, number in zip(rows.to_dict("records"), numbers, strict=True)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        match = string_match_all if TASKS[sample.meta["task"]].match == "all" else string_match_part
        return {"score": match(prediction, sample.answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        return breakdown(records, GROUPS, {"average": tuple(TASKS)})

    def _sample(self, row: dict, number: int) -> Sample:
        return Sample(
            id=f"{row['task']}-{self.length}-{number}",
            prompt=row["context"] + row["question"],
            answers=tuple(row["answer"]),
            max_new_tokens=int(row["max_new_tokens"]),
            question=row["question"],
            prefix=row["answer_prefix"],
            meta={"task": row["task"], "length": self.length, "origin": "kvpress"},
        )
