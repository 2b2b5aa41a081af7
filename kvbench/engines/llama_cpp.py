"""llama.cpp in a process of its own, through llama-cpp-python: K and V in types of their own."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from kvbench.engines.base import CacheBytes, CannotAnswer, Completion, Engine, Gone, Question, Session, Top
from kvbench.engines.worker import Worker, WorkerError, python_of, started
from kvbench.errors import UserError, unknown
from kvbench.models import Reader
from kvbench.models.embedded import gguf_of
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.hashing import file_hash

SCRIPT = Path(__file__).with_name("llama_worker.py")
PACKAGE = "llama-cpp-python==0.3.36"
# Bits of an element with its share of the scales of its block of 32 (ggml's block_q8_0 and others in ggml-common.h).
BITS = {
    **{"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5},
    **{"iq4_nl": 4.5},
}
PLAIN = ("f32", "f16", "bf16")


@checked(prefix="engine.")
class LlamaCpp(Engine):
    """A GGUF file with its cache in two types of ggml."""

    k: str = "f16"
    v: str | None = None  # None: K's
    model_file: str | None = None  # GGUF; None: that of the embedded model
    label: str | None = None  # None: llama_cpp and the types
    flash_attention: bool = True
    context: Positive | None = None  # tokens that the cache has room for; None: the model's
    threads: Positive | None = None  # None: as many as cores
    gpu_layers: int = 0  # -1: all
    python: str | None = None  # Python of the environment with llama-cpp-python; None: .venv-llama
    timeout: PositiveNumber = 3600.0  # seconds of a question
    repeat: NonNegative = 1
    top: Positive = 100
    about: dict = field(init=False, default_factory=dict)
    draws = False

    def __post_init__(self):
        self.v = self.v or self.k
        for name in ("k", "v"):
            if getattr(self, name) not in BITS:
                raise unknown(f"engine.{name}", str(getattr(self, name)), BITS)
        if self.v not in PLAIN and not self.flash_attention:
            raise UserError(f"engine.v={self.v} needs engine.flash_attention=true: llama.cpp quantises V with it alone")
        self.label = self.label or f"llama_cpp {self.k}/{self.v}"

    @property
    def parameters(self) -> dict:
        own = {name: getattr(self, name) for name in ("k", "v", "flash_attention", "gpu_layers")}
        return {"engine": "llama_cpp", **own}

    def connect(self, reader: Reader) -> None:
        python = python_of(self.python, ".venv-llama", f"'{PACKAGE}'")
        config = reader.config.get_text_config()
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        self.elements = config.num_hidden_layers * kv_heads * head_dim  # of K for a token, and of V
        file = self.file(reader)
        self.settings = {
            **{"model_file": str(file), "k": self.k, "v": self.v, "flash_attention": self.flash_attention},
            **{"context": self.context or reader.spec.max_length, "gpu_layers": self.gpu_layers},
            "threads": self.threads or len(os.sched_getaffinity(0)),
        }
        self.command = python, SCRIPT, self.settings, self.timeout
        try:
            with started(*self.command) as (_, told):
                pass
        except (WorkerError, Gone) as error:
            raise UserError(f"{self.label}: {error}") from error
        if told["vocabulary"] != config.vocab_size:
            raise UserError(
                f"engine.model_file={file} has {told['vocabulary']:,} tokens in its vocabulary, and {reader.spec.name} "
                f"has {config.vocab_size:,}: they are not the same model"
            )
        self.reported = told["reported_bytes"]
        self.about = {"version": told["version"], "model_file": f"sha256:{file_hash(file)}"}

    def file(self, reader: Reader) -> Path:
        """The GGUF file to read."""
        if self.model_file is not None:
            path = Path(self.model_file).expanduser()
            if not path.is_file():
                raise UserError(f"engine.model_file={self.model_file} does not exist")
            return path.resolve()
        if reader.spec.embedded is None or reader.spec.path is not None:
            raise UserError(f"engine.model_file is missing: the GGUF file of {reader.spec.name}")
        return gguf_of(reader.spec.embedded)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with started(*self.command) as (worker, _):
            yield InProcess(worker)

    def cache_bytes(self, tokens: int) -> CacheBytes:
        return CacheBytes(self.reported, round(tokens * self.elements * (BITS[self.k] + BITS[self.v]) / 8))


class InProcess(Session):
    """The questions of a run for a worker."""

    def __init__(self, worker: Worker):
        self.worker = worker

    def complete(self, question: Question, top: int) -> Completion:
        asked = {"ids": [*question.ids], "max_new_tokens": question.max_new_tokens, "stops": sorted(question.stops)}
        answer = self.asked({"do": "complete", **asked, "at_least_one": question.at_least_one, "top": top})
        return Completion("", answer["tokens"], answer["prompt_tokens"], answer["top"])

    def follow(self, question: Question, tokens: Sequence[int], top: int) -> Sequence[Top] | None:
        return self.asked({"do": "follow", "ids": [*question.ids], "tokens": [*tokens], "top": top})["top"]

    def asked(self, node: dict) -> dict:
        try:
            return self.worker.ask(node)
        except WorkerError as error:
            raise CannotAnswer(str(error)) from error
