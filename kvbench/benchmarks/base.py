"""The interface of benchmarks."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from kvbench.errors import UserError
from kvbench.utils.tokenizer import Tokenizer
from kvbench.utils.versions import Versioned

_left: ContextVar[int | None] = ContextVar("samples that may still be made", default=None)


@contextmanager
def at_most(samples: int) -> Iterator[None]:
    """Within the block no more than so many samples are made, whatever a configuration says: UserError for the next."""
    before = _left.set(samples)
    try:
        yield
    finally:
        _left.reset(before)


@dataclass(frozen=True)
class Sampling:
    """How an answer's tokens are drawn: one random number per token, from `seed` alone."""

    seed: int
    temperature: float = 1.0  # above 0
    top_p: float = 1.0  # only the likeliest tokens with this probability in all
    top_k: int | None = None  # only so many of the likeliest tokens; None: all


@dataclass(frozen=True)
class Turn:
    """The user's next message in a conversation, and the answer before it."""

    question: str
    answer: str = ""  # the expected one; of samples with `own_answers` the model's stands in its place
    max_new_tokens: int = 0  # of the model's own answer


@dataclass(frozen=True)
class Sample:
    """One prompt and its expected answers; with `turns`, those to the last of them."""

    id: str  # unique within the benchmark
    prompt: str
    answers: tuple[str, ...]
    max_new_tokens: int
    question: str = ""  # the question at the end of `prompt`; question=hidden compresses only what stands before it
    question_apart: bool = False  # the question, which may be empty, and what follows are tokenised by themselves
    prefix: str = ""  # text that begins the answer, after the chat template's assistant header
    history: tuple[tuple[str, str], ...] = ()  # role and content of a chat's messages before `prompt`, its last one
    # what follows the answer to `prompt`: read through the compressed caches, and never compressed with the prompt
    turns: tuple[Turn, ...] = ()
    continuation: str = ""  # text that follows the prompt: scored token by token, in place of an answer
    own_answers: bool = False  # all turns of a conversation: the model's own answers stay in its caches
    context_id: str = ""  # samples about one context: in one shard, drawn together for intervals
    # samples with the same one were not drawn independently of each other: they share a text; "": context_id, or the id
    unit: str = ""
    chat: bool = True  # inside the model's chat template, where it has one
    stop_at_newline: bool = False  # a line end ends the answer too, but not before one token
    spans: tuple[tuple[str, str], ...] = ()  # names and texts of passages whose survival is recorded, each there once
    may_be_empty: bool = False  # with stop_at_newline: the first token may end the answer after all
    single_stop: bool = False  # the tokenizer's end-of-sequence token alone stops, and not before one token
    sampling: Sampling | None = None  # None: the likeliest token, always
    meta: dict[str, Any] = field(default_factory=dict)  # columns of the record: task, length, depth, …

    def __post_init__(self) -> None:
        if (left := _left.get()) is not None:
            if not left:
                raise UserError("the benchmark makes more samples than may be made here")
            _left.set(left - 1)
        if not self.prompt.endswith(self.question):
            raise ValueError(f"sample {self.id!r}: the prompt does not end with its question")
        if self.prefix and self.turns:
            raise ValueError(f"sample {self.id!r}: an answer to a later turn has no prefix")
        if self.continuation and (self.answers or self.turns or self.prefix):
            raise ValueError(f"sample {self.id!r}: a text that is scored has no answer")
        if self.sampling and self.own_answers:
            raise ValueError(f"sample {self.id!r}: answers that stay in the caches cannot be sampled")


@dataclass(frozen=True)
class Heatmap:
    """A figure of a benchmark: the mean of `metric` in each cell of depth × length, a panel per setting."""

    cells: pd.DataFrame  # columns setting, depth, length, scores and those of ratios; one row per value
    metric: str


class Benchmark(Versioned, ABC):
    """A source of samples and their scores, independent of methods."""

    name: str
    # Names of the scores in every record; the first is the one tables rank by. A class has those of any configuration,
    # so that a misspelt one is found before torch is imported; an object may have fewer.
    metrics: tuple[str, ...]
    scored_by: tuple[str, ...] = ()  # the files of kvbench.metrics that `score` reads, for their versions
    packages: tuple[str, ...] = ()  # modules of extras (kvbench.utils.extras) without which `score` cannot be computed

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """Tokens of the longest prompt and its answer together, as far as known before a model is loaded.

        None: not known; then all samples are tokenised and measured before the first of them is run.
        """

    @abstractmethod
    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        """All samples, the same ones for the same configuration and tokenizer."""

    @abstractmethod
    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        """A score in [0, 1] for each name in `metrics`."""

    def heatmap(self, records: pd.DataFrame) -> "Heatmap | None":
        """The depth × length grid to draw from the records of a run; None where the benchmark has no such grid."""
        return None

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame | None:
        """A table by task beside the run's main one (see kvbench.metrics.aggregate), where there are tasks."""
        return None


# Fields that samples of earlier versions did not have: left out of the hash at their default, so that it stays.
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
    """SHA-256 over every field of the samples: all that decides what the model reads and how answers are scored.

    That of the JSON list of all samples, which is never in memory at once.
    """
    sha256, opening = hashlib.sha256(), "["
    for sample in samples:
        row = {key: value for key, value in asdict(sample).items() if (key, value) not in _ADDED.items()}
        row.pop("unit", None)  # decides how intervals are drawn, and nothing of what is read or scored
        sha256.update((opening + json.dumps(row, sort_keys=True, ensure_ascii=False)).encode())
        opening = ", "
    sha256.update(b"]" if samples else b"[]")
    return sha256.hexdigest()
