"""RULER as a benchmark."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import pandas as pd
from pydantic import BeforeValidator, Field

from kvbench.benchmarks.base import Benchmark, Sample, text_unit
from kvbench.benchmarks.niah.ranges import integers, whole
from kvbench.benchmarks.planned import PromptSize
from kvbench.benchmarks.ruler import files
from kvbench.benchmarks.ruler.generate import VERSION, generate
from kvbench.benchmarks.ruler.inputs import Inputs
from kvbench.benchmarks.ruler.tasks import GROUPS, HEADERS, MEANS, TASK_SETS, TASKS
from kvbench.metrics.aggregate import breakdown
from kvbench.utils.chat_template import templated, user_turn
from kvbench.utils.checked import Names, Positive, checked
from kvbench.utils.files import cache_root
from kvbench.utils.hashing import digest
from kvbench.utils.tokenizer import Tokenizer

LARGEST_SEED = 2**32 - 1  # of NumPy, which draws the values of vt
TEMPLATE_ROOM = 64  # tokens that a chat template may add to a prompt that was counted without


class Rows(NamedTuple):
    """The rows of a task at a length."""

    length: int
    task: str
    rows: list[dict[str, Any]]


@checked(prefix="benchmark.")
class Ruler(Benchmark):
    """RULER (Hsieh et al. 2024): 13 tasks at any length, the official generator's samples for the model's tokenizer.

    A length counts prompt, answer prefix and answer without special tokens and chat template; with
    `count_chat_template` it includes the template. Samples are generated once and cached, or read from `data_dir`.
    """

    scored_by = ("ruler",)

    lengths: Annotated[list[Annotated[int, Field(ge=256)]], BeforeValidator(integers)]
    tasks: Names = field(default_factory=lambda: ["all"])
    num_samples: Positive = 500
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 42
    count_chat_template: bool = False
    essays_dir: str | None = None
    sentences: Literal["nltk", "simple"] | None = None
    squad: str | None = None
    hotpotqa: str | None = None
    english_words: str | None = None
    data_dir: str | None = None
    name: str = "ruler"
    chosen: list[str] = field(init=False)
    inputs: Inputs = field(init=False, repr=False)
    imported: list[Rows] = field(init=False, repr=False)

    metrics = ("score",)

    task_sets = TASK_SETS
    task_means = MEANS
    headers = HEADERS
    rows_by_length = True

    @classmethod
    def prompt_sizes(cls, config: Mapping[str, Any]) -> dict[str, list[PromptSize]]:
        lengths = [length for length in whole(config["lengths"]) for _ in range(config["num_samples"])]
        return {
            task: [PromptSize(length, TASKS[task].max_new_tokens) for length in lengths]
            for task in cls.tasks_of(config["tasks"])
        }

    def __post_init__(self) -> None:
        self.chosen = self.tasks_of(self.tasks)
        self.inputs = Inputs(self.seed, self.essays_dir, self.sentences, self.squad, self.hotpotqa, self.english_words)
        # missing or malformed files are reported before a model is loaded
        if self.data_dir is None:
            self.inputs.check(self.chosen, self.num_samples)
        else:
            paths = files.find(self.data_dir, self.lengths, self.chosen, all_required=self.tasks != ["all"])
            self.imported = [
                Rows(length, name, files.read(path, name, length, self.num_samples))
                for (length, name), path in paths.items()
            ]

    @property
    def longest(self) -> int:
        return max(self.lengths) + (0 if self.count_chat_template else TEMPLATE_ROOM)

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        rows = self.generated(tokenizer) if self.data_dir is None else self.imported
        return [
            self._sample(f"{name}-{length}-{number}", length, name, row)
            for length, name, of_task in rows
            for number, row in enumerate(of_task)  # the rows' own `index` is not unique among needles
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {"score": TASKS[sample.meta["task"]].score(prediction, sample.answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """One row per task; with several lengths, one per task and length, and a mean per length."""
        lengths = list(dict.fromkeys(records["length"]))
        if len(lengths) == 1:
            return breakdown(records, GROUPS, {"average": tuple(TASKS)})
        rows = records.assign(task=records["task"] + " " + records["length"].astype(str))
        return breakdown(rows, {str(length): [f"{name} {length}" for name in TASKS] for length in lengths}, None)

    def generated(self, tokenizer: Tokenizer) -> Iterator[Rows]:
        """The rows of each length and task, from the cache or generated for this tokenizer."""

        def tokens(text: str) -> int:
            return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

        chat_tokens = _chat_tokens(tokenizer) if self.count_chat_template else 0
        counted_by = _identity(tokenizer)
        for length in self.lengths:
            for name in self.chosen:
                key = digest(VERSION, name, length, self.seed, chat_tokens, counted_by, self.inputs.identity(name))
                path = cache_root() / "ruler" / f"{name}-{length}-{key}.jsonl"
                make = partial(generate, name, length, self.num_samples, self.inputs, tokens, chat_tokens)
                yield Rows(length, name, files.cached(path, self.num_samples, make))

    def _sample(self, key: str, length: int, name: str, row: dict[str, Any]) -> Sample:
        task = TASKS[name]
        return Sample(
            id=key,
            prompt=row["input"],
            answers=tuple(row["outputs"]),
            max_new_tokens=task.max_new_tokens,
            question=files.question(name, row["input"]),
            prefix=row["answer_prefix"],
            unit=self._unit(name, row),
            meta={"task": name, "length": length, **self._origin(name)},
        )

    def _unit(self, name: str, row: dict[str, Any]) -> str:
        """What samples of several lengths share: the needles, or of a question on documents the paragraphs with the
        answer.

        Several questions are about one paragraph. An imported row has its question alone.
        """
        task = TASKS[name]
        if task.kind == "qa" and self.data_dir is None:
            return text_unit(self.inputs.questions(task.source, self.num_samples).gold(row["index"]))
        return files.unit_of(name, files.question(name, row["input"]), row["outputs"])

    def _origin(self, name: str) -> dict[str, Any]:
        """Fields of the record that name the source of a sample."""
        task = TASKS[name]
        if self.data_dir is not None:
            return {"origin": "imported"}
        origin = {"origin": "generated", "templates": self.inputs.texts_sha256[:16]}
        if task.kind == "niah":
            origin["haystack"] = self.inputs.essays.name if task.source == "essay" else task.source
        if task.source == "essay":
            origin["sentences"] = self.inputs.essays.splitter
        return origin


def _chat_tokens(tokenizer: Tokenizer) -> int:
    """Number of tokens around a user's text: the chat template's, or without one the special tokens."""
    if not templated(tokenizer):
        return tokenizer.num_special_tokens_to_add()
    return len(tokenizer(user_turn(tokenizer, ""), add_special_tokens=False)["input_ids"])


def _identity(tokenizer: Tokenizer) -> str:
    """A hash that differs between tokenizers that may count tokens differently."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return digest(type(tokenizer).__name__, tokenizer.get_vocab()) if backend is None else digest(backend.to_str())
