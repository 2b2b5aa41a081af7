"""The protocol of an engine: from token ids and stop rules to tokens, text and log-probabilities."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from kvbench.benchmarks import Sampling
from kvbench.engines.secrets import Secret
from kvbench.models import TextModel

ROUNDING = 1e-3  # a log-probability may exceed 0 by this much
# The most likely tokens at one place of a text and their log-probabilities in nats. A token is written as `token_id:17`
# if the engine gives ids, otherwise as text.
Top = Mapping[str, float]


@dataclass(frozen=True)
class Question:
    """A sample's prompt in the form that engines read, with the rules that end its answer."""

    sample: str  # id of the sample
    ids: Sequence[int]
    text: str  # the same prompt, for engines that do not take ids
    max_new_tokens: int
    stops: frozenset[int]  # tokens that end the answer and are not part of it
    at_least_one: bool = False  # the first token is not one of `stops`
    newline: bool = False  # a line end is among `stops`
    sampling: Sampling | None = None  # None: greedy
    # for engines with a chat template of their own; () for a prompt that is not a chat
    messages: Sequence["Message"] = ()


class Message(NamedTuple):
    role: str
    content: str


@dataclass(frozen=True)
class Completion:
    """An engine's answer."""

    text: str
    tokens: Sequence[int] | None = None  # None if the engine does not give token ids
    prompt_tokens: int | None = None  # by the engine's count
    # at each generated token, and at the token that ended the answer if the engine gives its place; None without them
    top: Sequence[Top] | None = None
    finish: str | None = "stop"  # the protocol's reason for the end of the answer; None if the engine gives none
    generated: int | None = None  # tokens of the answer, by the engine's count


@dataclass(frozen=True)
class Scored:
    """An engine's log-probabilities of the tokens of a text after a prompt."""

    logprobs: Sequence[float]  # of each token, in nats; NaN if the engine gives none
    top: Sequence[Top] | None = None  # the likeliest tokens at each place; None if the engine gives none
    read: int | None = None  # tokens of prompt and text, by the engine's count


class Session(ABC):
    """An engine that is ready to answer. Several threads may call it at once."""

    @abstractmethod
    def complete(self, question: Question, top: int) -> Completion:
        """The answer, with the `top` likeliest tokens at each place if `top` is not 0 and the engine gives them.

        Raises CannotAnswer for a question that the engine does not answer, and Gone if the engine has ended.
        """

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        """The likeliest tokens at the place of each of `tokens` after the prompt; None if the engine cannot tell."""
        return None

    def score(self, question: Question, tokens: Sequence[int], top: int) -> Scored:
        """The log-probability of each of `tokens` after the prompt, given all earlier ones, and the `top` likeliest.

        Raises CannotAnswer and Gone as `complete` does.
        """
        raise CannotAnswer("the engine does not score the tokens of a text")


class CannotAnswer(Exception):
    """The reason why a sample has no record, in one line. The run continues with the other samples."""


class Gone(Exception):
    """The reason why the engine does not answer any more, in one line."""


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of an engine's KV cache by their source; None if a source gives no number."""

    reported: int | None = None  # the engine's number, for the whole buffer that it made
    stated: int | None = None  # computed from the cache type: bits of elements and scales, for the prompt's tokens


@dataclass(frozen=True)
class Address:
    """The address of a server of an engine's model."""

    url: str  # ends in /v1
    model: str  # the server's id of the model
    chats: bool = False  # whether it takes messages; otherwise prompts as text
    extras: Mapping[str, Any] = field(default_factory=dict)  # further fields of requests
    secret: Secret | None = None


class Engine(ABC):
    """One configuration of an engine: a setting of a run. Its public fields are the keys of its file in conf/engine."""

    guide: ClassVar[str] = "docs/plug-ins.md"
    label: str | None  # the setting's name in tables, the same in every run; set when it is built
    # set by `connect`: version, model and flags as the engine reports them; part of every record's key
    about: dict[str, Any]
    draws: bool = True  # whether it answers questions with `sampling`
    chats: bool = False  # whether it takes only messages and applies a chat template of its own
    concurrency: int = 1  # number of questions at the same time
    repeat: int = 0  # number of samples that are asked twice
    top: int = 20  # number of likeliest tokens that distances compare

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Everything that an answer depends on, without paths and secrets; part of every record's key."""

    @abstractmethod
    def connect(self, reader: TextModel) -> None:
        """Set `about` from the engine. Raises UserError if the engine cannot answer for this model."""

    def cannot_score(self) -> str | None:
        """Why the connected engine does not score the tokens of a text, in one line; None if it does."""
        return None

    def cannot_serve(self) -> str | None:
        """Why the engine has no server for load tests, in one line; None if it has one."""
        return "kvbench starts no server of it: engine=openai engine.command='…' starts one, and engine.url=… finds it"

    def cannot_stand_beside(self, other: "Engine") -> str | None:
        """Why this engine and another of one command would be the same, in one line; None if they would not."""
        return None

    def served(self) -> AbstractContextManager[Address]:
        """A server of the connected engine within the block. Raises Gone if it does not start."""
        raise NotImplementedError(self.cannot_serve())

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]:
        """A session that answers within the block."""

    def cache_bytes(self, tokens: int) -> CacheBytes:
        """The bytes of the cache of a prompt of `tokens` tokens; unknown unless an engine overrides this."""
        return CacheBytes()
