"""The interface of benchmarks."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import pandas as pd

from kvbench.benchmarks.planned import Planned
from kvbench.errors import UserError
from kvbench.metrics.given_scores import number, shown, without_rounding
from kvbench.utils.tokenizer import Tokenizer
from kvbench.utils.versions import Versioned

_remaining: ContextVar[int | None] = ContextVar("samples that may still be made", default=None)


@contextmanager
def at_most(samples: int) -> Iterator[None]:
    """Limit the number of samples that are made in the block, whatever the configuration: UserError for the next."""
    before = _remaining.set(samples)
    try:
        yield
    finally:
        _remaining.reset(before)


def text_unit(text: str) -> str:
    """The `unit` of samples about this text, by its hash."""
    return f"text {hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Sampling:
    """How an answer's tokens are sampled: one random number per token, which depends on `seed` alone."""

    seed: int
    temperature: float = 1.0  # above 0
    top_p: float = 1.0  # only the likeliest tokens whose probabilities sum to this
    top_k: int | None = None  # only this many of the likeliest tokens; None: all


@dataclass(frozen=True)
class Turn:
    """The user's next message in a conversation, and the answer before it."""

    question: str
    answer: str = ""  # the expected one; with `own_answers`, the model's own replaces it
    max_new_tokens: int = 0  # of the model's own answer, as its own sample has it

    def __post_init__(self) -> None:
        most: object = self.max_new_tokens
        if not isinstance(most, Integral):
            raise ValueError(f"a Turn has max_new_tokens={most!r}: it must be an integer")
        object.__setattr__(self, "max_new_tokens", int(most))  # JSON does not hold NumPy's


@dataclass(frozen=True)
class Sample:
    """One prompt and its expected answers; with `turns`, the answers to the last turn.

    id               unique within the benchmark
    prompt           the text that the model reads, the question included
    answers          the expected answers, of which one is enough
    max_new_tokens   the most tokens of an answer
    question         the end of `prompt`; question=hidden compresses only the text before it
    question_apart   whether the question, which may be empty, and the rest are tokenised separately
    prefix           text that begins the answer, after the chat template's assistant header
    history          role and content of a chat's messages before `prompt`, which is its last one
    turns            after the answer to `prompt`: read through the compressed caches, never compressed with the prompt
    continuation     text after the prompt, scored token by token instead of an answer
    own_answers      for all turns of a conversation: the model's own answers stay in its caches
    context_id       of the context that several samples share: one shard, drawn together for intervals
    unit             of a text that several samples share, which were not drawn independently; "": context_id, or the id
    chat             inside the model's chat template, where it has one
    stop_at_newline  whether a line end ends the answer too, but not before one token
    spans            names and texts of passages whose survival is recorded, each unique
    may_be_empty     with stop_at_newline: the first token may end the answer after all
    single_stop      whether only the tokenizer's end-of-sequence token stops, and not before one token
    sampling         how answers are drawn; None: always the likeliest token
    meta             columns of the record: task, length, depth, …
    """

    id: str
    prompt: str
    answers: tuple[str, ...]
    max_new_tokens: int
    question: str = ""
    question_apart: bool = False
    prefix: str = ""
    history: tuple[tuple[str, str], ...] = ()
    turns: tuple[Turn, ...] = ()
    continuation: str = ""
    own_answers: bool = False
    context_id: str = ""
    unit: str = ""
    chat: bool = True
    stop_at_newline: bool = False
    spans: tuple[tuple[str, str], ...] = ()
    may_be_empty: bool = False
    single_stop: bool = False
    sampling: Sampling | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (remaining := _remaining.get()) is not None:
            if not remaining:
                raise UserError("the benchmark makes more samples than may be made here")
            _remaining.set(remaining - 1)
        self._check_types()
        self._make_plain()
        if not self.prompt.endswith(self.question):
            raise ValueError(f"sample {self.id!r}: the prompt does not end with its question")
        if self.prefix and self.turns:
            raise ValueError(f"sample {self.id!r}: an answer to a later turn has no prefix")
        if self.continuation and (self.answers or self.turns or self.prefix):
            raise ValueError(f"sample {self.id!r}: a text that is scored has no answer")
        if self.sampling and self.own_answers:
            raise ValueError(f"sample {self.id!r}: answers that stay in the caches cannot be sampled")
        if self.own_answers and any(turn.max_new_tokens < 1 for turn in self.turns):
            raise ValueError(f"sample {self.id!r}: the model's own answer before a turn needs its max_new_tokens")

    def _check_types(self) -> None:
        """Raise ValueError for values of other types, of which some would be scored: a text as `answers` would be
        read as a list of its characters."""
        for name in ("prompt", "question", "prefix", "continuation", "context_id", "unit"):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"sample {self.id!r}: {name}={value!r} must be a text")
        answers: object = self.answers
        if not isinstance(answers, tuple | list) or not all(isinstance(answer, str) for answer in answers):
            raise ValueError(f"sample {self.id!r}: answers={answers!r} must be a tuple of texts, of one as (text,)")
        most, least = self.max_new_tokens, 0 if self.continuation else 1
        if not isinstance(most, Integral) or most < least:
            raise ValueError(f"sample {self.id!r}: max_new_tokens={most!r} must be an integer of at least {least}")
        turns: object = self.turns
        if not isinstance(turns, tuple | list) or not all(isinstance(turn, Turn) for turn in turns):
            raise ValueError(f"sample {self.id!r}: turns={turns!r} must be a tuple of Turns")
        for name in ("spans", "history"):
            if not _pairs_of_texts(value := getattr(self, name)):
                raise ValueError(f"sample {self.id!r}: {name}={value!r} must be a tuple of pairs of texts")
        if not isinstance(self.meta, Mapping):
            raise ValueError(f"sample {self.id!r}: meta={self.meta!r} must be a dict")
        for key, value in self.meta.items():
            if not isinstance(key, str) or not _is_json(value):
                raise ValueError(
                    f"sample {self.id!r}: {key!r}: {value!r} of its meta must be a name and what JSON holds: a text, a "
                    "number (of numpy or torch as value.item()), true or false, None, or a list or dict of these"
                )

    def _make_plain(self) -> None:
        """Tuples in the place of lists, which cannot be keys of groups, and a Python integer, which JSON holds."""
        plain = {
            "answers": tuple(self.answers),
            "max_new_tokens": int(self.max_new_tokens),
            "history": tuple(map(tuple, self.history)),
            "turns": tuple(self.turns),
            "spans": tuple(map(tuple, self.spans)),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen


def _pairs_of_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and all(
        isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
        for pair in value
    )


def _is_json(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(inner) for key, inner in value.items())
    return value is None or isinstance(value, str | bool | int | float)


@dataclass(frozen=True)
class Heatmap:
    """A figure of a benchmark: the mean of `metric` in each cell of depth × length, a panel per setting."""

    cells: pd.DataFrame  # columns setting, depth, length, scores and the ratios; one row per value
    metric: str

    def __post_init__(self) -> None:
        if lacking := [name for name in ("setting", "depth", "length", "scores") if name not in self.cells]:
            raise UserError(f"the cells of a Heatmap have no column {', '.join(lacking)}")


class Benchmark(Planned, Versioned, ABC):
    """A source of samples and their scores, independent of methods."""

    guide: ClassVar[str] = "docs/adding-a-benchmark.md"
    name: str
    # Names of the scores in every record; intervals and differences in tables are of the first. A class has the names
    # of all its configurations, so that a misspelt one is reported before torch is imported; an object may have fewer.
    metrics: tuple[str, ...]
    scored_by: tuple[str, ...] = ()  # the files of kvbench.metrics that `score` uses, for their versions
    packages: tuple[str, ...] = ()  # modules of extras (kvbench.utils.extras) that `score` needs

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The most tokens of a prompt and its answer together, where it is known before a model is loaded.

        None: not known; all samples are then tokenised and measured before the first is run.
        """

    @abstractmethod
    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """All samples; a configuration and a tokenizer always give the same ones."""

    @abstractmethod
    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """A score in [0, 1] for each name in `metrics`."""

    def scores(self, sample: Sample, prediction: str) -> dict[str, float]:
        """`score`, whose numbers may be NumPy's, torch's or truth values, as a record has it.

        Raises UserError for anything but a number from 0 to 1, outside of which no interval would hold, for scores
        without the first of its metrics, and for a name that is none of the metrics: tables would not show it. What
        is not finite is left to the run, which reports it and goes on.
        """
        given: object = self.score(sample, prediction)
        who = f"{type(self).__name__}.score returned"
        if not isinstance(given, Mapping):
            raise UserError(f"{who} {given!r}: a number for each name of its metrics is needed")
        scores: dict[str, float] = {}
        for name, value in given.items():
            score = number(value)
            if score is None or (math.isfinite(score) and not 0 <= without_rounding(score) <= 1):
                what = shown(value) if score is None else f"{score:g}"
                raise UserError(f"{who} {name}={what}: a number from 0 to 1 is needed")
            scores[name] = without_rounding(score)
        if scores and self.metrics and self.metrics[0] not in scores:
            raise UserError(f"{who} {', '.join(scores)}, without {self.metrics[0]!r}, the first of its metrics")
        of_class = getattr(type(self), "metrics", ())  # an object may have fewer; a property says nothing of the class
        declared = {*self.metrics, *(of_class if isinstance(of_class, tuple) else ())}
        if undeclared := [name for name in scores if name not in declared]:
            raise UserError(f"{who} {undeclared[0]}={scores[undeclared[0]]:g}, which is none of its metrics")
        return scores

    def place_of(self, sample: Sample) -> str:
        """Where a sample comes from, before a fault of it: "FILE, row 3"; empty where that is not known."""
        return ""

    def heatmap(self, records: pd.DataFrame) -> "Heatmap | None":
        """The depth × length grid to draw from the records of a run; None where the benchmark has no such grid."""
        return None

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame | None:
        """A table by task beside the run's main table (see kvbench.metrics.aggregate); None without tasks."""
        return None


# Fields that samples of earlier versions did not have: at its default, a field is left out of the hash.
_ADDED = {
    "question_apart": False,
    "single_stop": False,
    "history": (),
    "turns": (),
    "own_answers": False,
    "context_id": "",
    "sampling": None,
    "continuation": "",
    "spans": (),
}


def data_hash(samples: Sequence[Sample]) -> str:
    """SHA-256 of the samples as a JSON list: of all fields that decide the prompts and the scores.

    The list is never in memory as a whole.
    """
    sha256, opening = hashlib.sha256(), "["
    for sample in samples:
        row = {key: value for key, value in asdict(sample).items() if (key, value) not in _ADDED.items()}
        row.pop("unit", None)  # decides intervals, but neither prompts nor scores
        sha256.update((opening + json.dumps(row, sort_keys=True, ensure_ascii=False)).encode())
        opening = ", "
    sha256.update(b"]" if samples else b"[]")
    return sha256.hexdigest()
