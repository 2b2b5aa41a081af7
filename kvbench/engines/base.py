"""The protocol of an engine: from token ids and stop rules to tokens, text and log-probabilities."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvbench.benchmarks import Sampling
from kvbench.engines.secrets import Secret
from kvbench.models import TextModel

ROUNDING = 1e-3  # by which a log-probability may exceed 0
# The most likely tokens at one place of a text and their log-probabilities in nats. A token is written as the engine
# writes it: `token_id:17` where it gives ids, else as text.
Top = Mapping[str, float]


@dataclass(frozen=True)
class Question:
    """A sample's prompt as an engine reads it, with the rules that end its answer."""

    sample: str  # its id
    ids: Sequence[int]
    text: str  # the same prompt, for engines that take no ids
    max_new_tokens: int
    stops: frozenset[int]  # tokens that end the answer and are no part of it
    at_least_one: bool = False  # the first token is none of `stops`
    newline: bool = False  # a line end is among `stops`
    sampling: Sampling | None = None  # None: the likeliest token, always
    # for engines that write them in a template of their own; () of a prompt that is no chat
    messages: Sequence["Message"] = ()


class Message(NamedTuple):
    role: str
    content: str


@dataclass(frozen=True)
class Completion:
    """What an engine answered."""

    text: str
    tokens: Sequence[int] | None = None  # None where the engine does not give them
    prompt_tokens: int | None = None  # as the engine counted them
    # for each generated token, and the one that ended the answer where the engine gives its place; None without
    top: Sequence[Top] | None = None
    finish: str | None = "stop"  # why the answer ended, in the protocol's words; None where the engine does not say
    generated: int | None = None  # tokens of the answer, as the engine counted them


@dataclass(frozen=True)
class Scored:
    """How an engine predicts given tokens behind a prompt."""

    logprobs: Sequence[float]  # of each token, in nats; NaN where the engine gives none
    top: Sequence[Top] | None = None  # the likeliest tokens at each place; None where the engine gives none
    read: int | None = None  # tokens of prompt and text, as the engine counted them


class Session(ABC):
    """An engine that is ready to answer. Several threads may call it at once."""

    @abstractmethod
    def complete(self, question: Question, top: int) -> Completion:
        """The answer, with the `top` likeliest tokens at each place where it can be had and `top` is not 0.

        Raises CannotAnswer for a question that this engine does not answer, and Gone where the engine has ended.
        """

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        """The likeliest tokens at the place of each of `tokens` after the prompt; None where the engine cannot say."""
        return None

    def score(self, question: Question, tokens: Sequence[int], top: int) -> Scored:
        """The log-probability of each of `tokens` after the prompt, given all earlier ones, and the `top` likeliest.

        Raises CannotAnswer and Gone as `complete` does.
        """
        raise CannotAnswer("the engine does not score given tokens")


class CannotAnswer(Exception):
    """Why there is no record of a sample, in one line. The run continues with the others."""


class Gone(Exception):
    """Why the engine no longer answers, in one line."""


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of an engine's KV cache by their source; None where that source has no number."""

    reported: int | None = None  # by the engine, of the whole buffer that it made
    stated: int | None = None  # follows from the type: bits of its elements and scales, for the prompt's tokens


@dataclass(frozen=True)
class Address:
    """A server that answers for an engine's model."""

    url: str  # ends in /v1
    model: str  # its id of the model
    chats: bool = False  # takes messages; else prompts as text
    extras: Mapping[str, Any] = field(default_factory=dict)  # further fields of requests
    secret: Secret | None = None


class Engine(ABC):
    """One configuration of an engine: a setting of a run. Its public fields are those of its file in conf/engine."""

    label: str | None  # what tables call the setting, the same in every run; set when it is built
    # set by `connect`: version, model and flags as the engine reports them; part of every record's key
    about: dict[str, Any]
    draws: bool = True  # whether it answers questions with `sampling`
    chats: bool = False  # whether it takes messages alone, and writes them in a template of its own
    concurrency: int = 1  # questions at once
    repeat: int = 0  # samples that are asked twice
    top: int = 20  # likeliest tokens that distances compare

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What an answer depends on, without paths and secrets; part of every record's key."""

    @abstractmethod
    def connect(self, reader: TextModel) -> None:
        """Set `about` from the engine. Raises UserError where it cannot answer for this model."""

    def cannot_score(self) -> str | None:
        """Why the connected engine does not score the tokens of a text, in one line; None where it does."""
        return None

    def cannot_serve(self) -> str | None:
        """Why the engine has no server that could be loaded, in one line; None where it has one."""
        return "kvbench starts no server of it: engine=openai engine.command='…' starts one, and engine.url=… finds it"

    def served(self) -> AbstractContextManager[Address]:
        """A server of the connected engine within the block. Raises Gone where it does not start."""
        raise NotImplementedError(self.cannot_serve())

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]:
        """Ready to answer within the block."""

    def cache_bytes(self, tokens: int) -> CacheBytes:
        """The bytes of a prompt of so many tokens; unknown unless an engine overrides this."""
        return CacheBytes()
