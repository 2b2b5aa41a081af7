"""What engines in a worker process have in common: one process a session, and questions by token ids."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvbench.engines.base import CannotAnswer, Completion, Engine, Gone, Question, Scored, Session, Top
from kvbench.engines.worker import Worker, WorkerError, python_of, started
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.models.embedded import gguf_of


class InWorker(Engine):
    """An engine in an environment of its own. Answers greedily, one question at a time."""

    draws = False
    environment: str  # folder that make engines installs it into
    requirement: str  # what pip installs, as a shell reads it
    script: Path  # the worker, run by the environment's Python
    python: str | None
    timeout: float

    @abstractmethod
    def launch(self, reader: TextModel) -> dict[str, Any]:
        """The settings that the worker reads first. Raises UserError for what it could not read."""

    def start(self, reader: TextModel) -> dict[str, Any]:
        """Start the engine once, and end it again: what it says of itself, with `version` and `vocabulary`.

        Raises UserError where it is not installed, refuses its settings (in its own words) or has another model.
        """
        python = python_of(self.python, self.environment, self.requirement)
        self.command = python, self.script, self.launch(reader), self.timeout
        try:
            with started(*self.command) as (_, told):
                pass
        except (WorkerError, Gone) as error:
            raise UserError(f"{self.label}: {error}") from error
        size = reader.config.get_text_config().vocab_size
        if told["vocabulary"] not in (size, len(reader.tokenizer)):  # a network's can be larger than its tokenizer's
            raise UserError(
                f"{self.label}: the engine's model has {told['vocabulary']:,} tokens in its vocabulary, and "
                f"{reader.spec.name} has {size:,}: they are not the same model"
            )
        return told

    @contextmanager
    def session(self) -> Iterator[Session]:
        with started(*self.command) as (worker, _):
            yield Asked(worker)


class Asked(Session):
    """The questions of a run for a worker."""

    def __init__(self, worker: Worker):
        self.worker = worker

    def complete(self, question: Question, top: int) -> Completion:
        asked = {"ids": [*question.ids], "max_new_tokens": question.max_new_tokens, "stops": sorted(question.stops)}
        answer = self.asked({"do": "complete", **asked, "at_least_one": question.at_least_one, "top": top})
        return Completion("", answer["tokens"], answer["prompt_tokens"], answer["top"])

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        return self.asked(
            {"do": "follow", "ids": [*question.ids], "tokens": [*tokens], "top": top}
        )["top"]

    def score(self, question: Question, tokens: Sequence[int], top: int) -> Scored:
        found = self.asked({"do": "score", "ids": [*question.ids], "tokens": [*tokens], "top": top})
        return Scored(found["logprobs"], found["top"], found["read"])

    def asked(self, node: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.worker.ask(node)
        except WorkerError as error:
            raise CannotAnswer(str(error)) from error


def elements_of(reader: TextModel) -> int:
    """Elements of K that all layers hold of a token, and of V."""
    config = reader.config.get_text_config()
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return config.num_hidden_layers * kv_heads * head_dim


def given_model(given: str | None, reader: TextModel) -> Path:
    """The file or folder `given` as engine.model_file, or the GGUF file of an embedded model."""
    if given is not None:
        path = Path(given).expanduser()
        if not path.exists():
            raise UserError(f"engine.model_file={given} does not exist")
        return path.resolve()
    if reader.spec.embedded is None or reader.spec.path is not None:
        raise UserError(f"engine.model_file is missing: the GGUF file of {reader.spec.name}")
    return gguf_of(reader.spec.embedded)
