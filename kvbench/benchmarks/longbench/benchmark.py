"""LongBench v1 and LongBench-E as benchmarks."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.longbench import data, templates
from kvbench.benchmarks.longbench.prompt import build
from kvbench.benchmarks.longbench.tasks import AVERAGES, GROUPS, HEADERS, LONGBENCH_E, TASKS, Task, task_sets
from kvbench.benchmarks.near_copies import text_units
from kvbench.benchmarks.planned import PromptSize
from kvbench.benchmarks.truncation import TEMPLATE_ROOM
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown, range_score
from kvbench.metrics.backends import check_backend
from kvbench.metrics.longbench import METRICS, PACKAGES, companions
from kvbench.metrics.longbench import score as official_score
from kvbench.utils.checked import Names, NonNegative, checked
from kvbench.utils.tokenizer import Tokenizer

BUCKETS = ("0-4k", "4-8k", "8k+")  # LongBench-E's ranges of length in words


def bucket(length: int) -> str:
    """The range of a length in words."""
    return BUCKETS[(length >= 4000) + (length >= 8000)]


@checked(prefix="benchmark.")
class LongBench(Benchmark):
    """LongBench v1 (Bai et al. 2024) with the official prompts, truncation, lengths and metrics.

    prompt_protocol="longbench_chat"    the official one: chat template but for few-shot and code tasks.
    prompt_protocol="legacy_pyramidkv"  PyramidKV's run_longbench.py to 2026-07: raw text; only the tokenizer's
                                        end-of-sequence token ends an answer, and not before one token
                                        (min_length = context + 1); a line end does not, even in samsum.

    Rows come from `data_dir`, or from `repository` on the hub. Rows and templates are read and checked here, so that
    their errors are reported before a model is loaded.
    """

    metrics = tuple("score rouge_score_l".split())
    scored_by = ("longbench",)

    tasks: Names
    max_length: Annotated[int, Field(ge=2)] | None  # tokens before the chat template; longer prompts are cut
    prompt_protocol: Literal["longbench_chat", "legacy_pyramidkv"] = "longbench_chat"
    data_dir: str | None = None
    repository: str = "zai-org/LongBench"
    revision: str = "main"
    prompts_file: str | None = None
    seed: NonNegative | None = None  # shuffles the rows within each task; None: the official order
    name: str = "longbench"
    chosen: list[Task] = field(init=False)
    prompts: dict[str, str] = field(init=False, repr=False)
    rows: dict[str, list[dict[str, Any]]] = field(init=False, repr=False)

    task_sets = task_sets()
    headers = HEADERS
    extended = False  # LongBench-E's files

    @classmethod
    def prompt_sizes(cls, config: Mapping[str, Any]) -> dict[str, list[PromptSize]] | None:
        if cls.extended:
            return None  # other samples of the tasks
        tasks = [TASKS[name] for name in cls.tasks_of(config["tasks"])]
        return {task.name: [PromptSize(config["max_length"], task.max_new_tokens)] * task.samples for task in tasks}

    def __post_init__(self) -> None:
        self.chosen = [TASKS[name] for name in self.tasks_of(self.tasks)]
        if self.max_length is None:
            raise UserError(
                f"LongBench publishes no prompt length for this model with {self.prompt_protocol}: give "
                "benchmark.max_length=TOKENS, for example 7500 for a context limit of 8192"
            )
        self.limit = self.max_length
        scored = {METRICS[task.name] for task in self.chosen}
        self.backend = check_backend() if "code_sim" in scored else None
        self.metrics = ("score", "rouge_score_l") if scored & {"rouge", "rouge_zh"} else ("score",)
        self.packages = tuple(module for module, metrics in PACKAGES.items() if scored & metrics)
        names = [task.name for task in self.chosen]
        self.prompts = templates.load(names, self.prompts_file)
        folder = data.from_hub(self.repository, self.revision) if self.data_dir is None else Path(self.data_dir)
        self.rows = data.read(folder, names, self.extended)

    @property
    def longest(self) -> int:
        return self.limit + TEMPLATE_ROOM + max(task.max_new_tokens for task in self.chosen)

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        return [sample for task in self.chosen for sample in self._samples(task, tokenizer)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """The official score; for summaries also Google's ROUGE-L."""
        task, answers = sample.meta["task"], sample.answers
        value = official_score(task, prediction, answers, sample.meta.get("all_classes"))
        return {"score": value, **companions(task, prediction, answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        return breakdown(records, GROUPS, AVERAGES)

    def _samples(self, task: Task, tokenizer: Tokenizer) -> Iterator[Sample]:
        official = self.prompt_protocol == "longbench_chat"
        numbers, rows = zip(*self._in_order(task.name), strict=True)
        prompts = build(self.prompts[task.name], rows, self.limit, tokenizer)
        units = text_units([row["context"] for row in self.rows[task.name]])
        for number, row, (prompt, question) in zip(numbers, rows, prompts, strict=True):
            yield Sample(
                id=f"{task.name}:{number if row['_id'] is None else row['_id']}",
                prompt=prompt,
                answers=tuple(row["answers"]),
                max_new_tokens=task.max_new_tokens,
                question=question,
                chat=task.chat and official,
                stop_at_newline=task.stop_at_newline and official,
                single_stop=not official,
                unit=units[number - 1],
                meta=self._meta(task, row),
            )

    def _in_order(self, task: str) -> Sequence[tuple[int, dict[str, Any]]]:
        """The rows with their numbers from 1, shuffled where there is a seed."""
        rows = list(enumerate(self.rows[task], 1))
        if self.seed is not None:
            random.Random(f"{self.seed} {task}").shuffle(rows)
        return rows

    def _meta(self, task: Task, row: dict[str, Any]) -> dict[str, Any]:
        """Columns of the record. With its answers and classes, a prediction can be scored again."""
        meta = {"task": task.name, "group": task.group, "language": task.language, "length": row["length"]}
        if METRICS[task.name] == "classification":
            meta["all_classes"] = row["all_classes"]
        if METRICS[task.name] == "code_sim":
            meta["metric_backend"] = self.backend
        return meta


@checked(prefix="benchmark.")
class LongBenchE(LongBench):
    """LongBench-E: 13 English tasks, each scored within three ranges of length."""

    name: str = "longbench_e"

    task_sets = task_sets(LONGBENCH_E)
    extended = True

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """One row per task and range of lengths, and a mean per range."""
        rows = records.assign(task=records["task"] + " " + records["bucket"])
        ranges = {name: [f"{task} {name}" for task in LONGBENCH_E] for name in BUCKETS}
        return breakdown(rows, ranges, None, of_task=range_score)

    def _meta(self, task: Task, row: dict[str, Any]) -> dict[str, Any]:
        return super()._meta(task, row) | {"bucket": bucket(row["length"])}
