"""llama.cpp in a process of its own, through llama-cpp-python: K and V in types of their own."""

import os
from dataclasses import field
from pathlib import Path
from typing import Any

from kvbench.engines.base import CacheBytes
from kvbench.engines.in_worker import InWorker, elements_of, given_model
from kvbench.errors import UserError, unknown
from kvbench.models import TextModel
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked
from kvbench.utils.hashing import file_hash

# Bits of an element with its share of the scales of its block of 32 (ggml's block_q8_0 and others in ggml-common.h).
BITS = {
    **{"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5},
    **{"iq4_nl": 4.5},
}
PLAIN = ("f32", "f16", "bf16")


@checked(prefix="engine.")
class LlamaCpp(InWorker):
    """A GGUF file with its cache in two types of ggml."""

    k: str = "f16"
    v: str | None = None  # None: K's
    model_file: str | None = None  # GGUF; None: that of a model from PyPI
    label: str | None = None  # None: llama_cpp and the types
    flash_attention: bool = True
    rotation: bool = True  # of quantised K and V by a Hadamard transform, as llama.cpp does by default
    context: Positive | None = None  # tokens that the cache has room for; None: the model's
    threads: Positive | None = None  # None: as many as cores
    gpu_layers: int = 0  # -1: all
    python: str | None = None  # Python of the environment with llama-cpp-python; None: .venv-llama
    timeout: PositiveNumber = 3600.0  # seconds of a question
    repeat: NonNegative = 1
    top: Positive = 100
    about: dict[str, Any] = field(init=False, default_factory=dict)
    environment = ".venv-llama"
    requirement = "'llama-cpp-python==0.3.36'"
    script = Path(__file__).with_name("llama_worker.py")

    def __post_init__(self) -> None:
        self.v = self.v or self.k
        for name in ("k", "v"):
            if getattr(self, name) not in BITS:
                raise unknown(f"engine.{name}", str(getattr(self, name)), BITS)
        if self.v not in PLAIN and not self.flash_attention:
            raise UserError(f"engine.v={self.v} needs engine.flash_attention=true: llama.cpp quantises V with it alone")
        self.unrotated = not self.rotation and not {self.k, self.v} <= {*PLAIN}
        self.label = self.label or f"llama_cpp {self.k}/{self.v}" + " unrotated" * self.unrotated

    @property
    def parameters(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("k", "v", "flash_attention", "gpu_layers")}
        return {"engine": "llama_cpp", **own, **({"rotation": False} if self.unrotated else {})}

    def connect(self, reader: TextModel) -> None:
        self.elements = elements_of(reader)
        told = self.start(reader)
        self.reported = told["reported_bytes"]
        self.about = {"version": told["version"], "model_file": f"sha256:{file_hash(self.file)}"}

    def launch(self, reader: TextModel) -> dict[str, Any]:
        self.file = given_model(self.model_file, reader)
        if not self.file.is_file():
            raise UserError(f"engine.model_file={self.model_file} is no file")
        return {
            **{"model_file": str(self.file), "k": self.k, "v": self.v, "flash_attention": self.flash_attention},
            "rotation": self.rotation,
            **{"context": self.context or reader.spec.max_length, "gpu_layers": self.gpu_layers},
            "threads": self.threads or len(os.sched_getaffinity(0)),
        }

    def cache_bytes(self, tokens: int) -> CacheBytes:
        return CacheBytes(self.reported, round(tokens * self.elements * (BITS[self.k] + BITS[self.v or self.k]) / 8))
