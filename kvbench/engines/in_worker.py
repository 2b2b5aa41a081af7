"""The base of engines in a worker process: one process per session, and questions by token ids."""

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, fields
from pathlib import Path
from typing import Any, ClassVar

from kvbench.engines.base import CannotAnswer, Completion, Engine, Gone, Question, Scored, Session, Top
from kvbench.engines.same_model import check_decoded, check_shape, check_size, check_tokens
from kvbench.engines.worker import Worker, WorkerError, python_of, started
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.models.embedded import gguf_of
from kvbench.models.token_numbers import stored_numbers
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.model_shape import is_gguf


@checked(prefix="engine.")
class InWorker(Engine):
    """An engine in a separate environment. It answers greedily, one question at a time."""

    label: str | None = None  # None: the engine's name and the options of its cache
    context: Positive | None = None  # tokens of a prompt and its answer; None: the model's limit
    threads: Positive | None = None  # None: the number of cores
    python: str | None = None  # Python of the engine's environment; None: the Python in `environment`
    timeout: PositiveNumber = 3600.0  # seconds for a question
    repeat: NonNegative = 3
    about: dict[str, Any] = field(init=False, default_factory=dict)
    draws = False
    environment: ClassVar[str]  # folder into which `make engines` installs it
    requirement: ClassVar[str]  # arguments of pip install, quoted for a shell
    script: ClassVar[Path]  # the worker's file, see worker_loop.py

    @abstractmethod
    def launch(self, reader: TextModel) -> dict[str, Any]:
        """The settings that the worker reads first. Raises UserError for a model that it cannot read."""

    def start(self, reader: TextModel) -> dict[str, Any]:
        """Start the engine once and end it. The result is the engine's description of itself, with `version` and
        `vocabulary`, and if it knows them the `shape` of its model and its `tokens`, or the `decoded` tokens.

        Raises UserError if it is not installed, refuses its settings (in its own words) or has another model.
        """
        python = python_of(self.python, self.environment, self.requirement)
        self.command = python, self.script, self.launch(reader), self.timeout
        try:
            with started(*self.command) as (_, description):
                pass
        except (WorkerError, Gone) as error:
            raise UserError(f"{self.label}: {error}") from error
        assert self.label, "named when it was built"
        check_size(self.label, description["vocabulary"], reader)
        check_shape(self.label, description.get("shape", {}), reader)
        for name, check in {"tokens": check_tokens, "decoded": check_decoded}.items():
            if name in description:
                check(self.label, description[name], reader)
        return description

    def named(self, names: Sequence[str]) -> dict[str, Any]:
        """The values of the keys `names` that differ from their defaults; earlier records have none of these keys."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name in names if (value := getattr(self, name)) != defaults[name]}

    def settings(self, reader: TextModel) -> dict[str, Any]:
        """The settings that every worker reads: the tokens of the cache, and threads."""
        threads = self.threads or len(os.sched_getaffinity(0))
        return {"context": self.context or reader.spec.max_length, "threads": threads}

    @contextmanager
    def session(self) -> Iterator[Session]:
        with started(*self.command) as (worker, _):
            yield WorkerSession(worker)


class WorkerSession(Session):
    """A worker that answers the questions of a run."""

    def __init__(self, worker: Worker):
        self.worker = worker

    def complete(self, question: Question, top: int) -> Completion:
        rules = {"max_new_tokens": question.max_new_tokens, "stops": sorted(question.stops)}
        rules |= {"at_least_one": question.at_least_one}
        answer = self.ask({"do": "complete", "ids": [*question.ids], **rules, "top": top})
        return Completion("", answer["tokens"], answer["prompt_tokens"], answer["top"])

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        return self.ask({"do": "follow", "ids": [*question.ids], "tokens": [*tokens], "top": top})["top"]

    def score(self, question: Question, tokens: Sequence[int], top: int) -> Scored:
        answer = self.ask({"do": "score", "ids": [*question.ids], "tokens": [*tokens], "top": top})
        return Scored(answer["logprobs"], answer["top"], answer["read"])

    def ask(self, node: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.worker.ask(node)
        except WorkerError as error:
            raise CannotAnswer(str(error)) from error


def in_label(named: Mapping[str, Any]) -> str:
    """Keys that differ from their defaults, as the end of a label."""
    return "".join(
        f" {name}={json.dumps(value) if not isinstance(value, str) else value}" for name, value in named.items()
    )


def stated_bytes(
    reader: TextModel, tokens: int, key_bits: float, value_bits: float, windowed: bool = True
) -> int | None:
    """Bytes of keys and values in these bits per element for a prompt's tokens, in all layers of the model; None if
    kvbench cannot describe the layers. windowed: whether a layer with a sliding window keeps the window alone."""
    try:
        keys, values = stored_numbers(reader.config, tokens, windowed)
    except UserError:
        return None
    return round((keys * key_bits + values * value_bits) / 8)


def model_path(model_file: str | None, reader: TextModel) -> Path:
    """The file or folder engine.model_file, or the GGUF file from which the model is read.

    Raises UserError if it does not exist, or if neither is known.
    """
    if model_file is not None:
        path = Path(model_file).expanduser()
        if not path.exists():
            raise UserError(f"engine.model_file={model_file} does not exist")
        return path.resolve()
    if reader.spec.path is not None and is_gguf(reader.spec.path):
        return Path(reader.spec.path).expanduser().resolve()
    if reader.spec.embedded is None or reader.spec.path is not None:
        raise UserError(f"engine.model_file is missing: the GGUF file of {reader.spec.name}")
    return gguf_of(reader.spec.embedded)
