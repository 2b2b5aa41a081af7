"""llama.cpp in a separate process, through llama-cpp-python, with a cache type for K and one for V."""

from pathlib import Path
from typing import Any

from kvbench.engines.base import CacheBytes
from kvbench.engines.in_worker import InWorker, in_label, model_path, stated_bytes
from kvbench.errors import UserError, unknown
from kvbench.models import TextModel
from kvbench.utils.checked import Positive, checked
from kvbench.utils.hashing import file_hash

# Bits of an element with its share of the scales of a block of 32 (block_q8_0 and others in ggml-common.h of ggml).
BITS = dict(f32=32, f16=16, bf16=16, q8_0=8.5, q5_1=6, q5_0=5.5, q4_1=5, q4_0=4.5, iq4_nl=4.5)
PLAIN = ("f32", "f16", "bf16")


@checked(prefix="engine.")
class LlamaCpp(InWorker):
    """A GGUF file with K and V of its cache in types of ggml."""

    k: str = "f16"
    v: str | None = None  # None: the type of K
    model_file: str | None = None  # a GGUF file; None: the file of a model from PyPI
    flash_attention: bool = True
    rotation: bool = True  # rotate quantised K and V by a Hadamard transform, as llama.cpp does by default
    gpu_layers: int = 0  # -1: all
    swa_full: bool | None = None  # keep all tokens in layers with a sliding window; None: llama.cpp's default, true
    top: Positive = 100
    environment = ".venv-llama"
    requirement = "'llama-cpp-python==0.3.36'"
    script = Path(__file__).with_name("llama_worker.py")

    def __post_init__(self) -> None:
        self.v = self.v or self.k
        for name in ("k", "v"):
            if getattr(self, name) not in BITS:
                raise unknown(f"engine.{name}", str(getattr(self, name)), BITS)
        if self.v not in PLAIN and not self.flash_attention:
            raise UserError(f"engine.v={self.v} needs engine.flash_attention=true: llama.cpp quantises V only with it")
        self.unrotated = not self.rotation and not {self.k, self.v} <= {*PLAIN}
        types = f"llama_cpp {self.k}/{self.v}" + " unrotated" * self.unrotated
        self.label = self.label or types + in_label(self.named(["swa_full"]))

    @property
    def parameters(self) -> dict[str, Any]:
        names = ("k", "v", "flash_attention", "gpu_layers")
        rotation = {"rotation": False} if self.unrotated else {}
        of_keys = {name: getattr(self, name) for name in names}
        return {"engine": "llama_cpp", **of_keys, **rotation, **self.named(["swa_full"])}

    def connect(self, reader: TextModel) -> None:
        self.reader = reader
        description = self.start(reader)
        self.reported, self.windows = description["reported_bytes"], description["windows"]
        self.about = {"version": description["version"], "model_file": f"sha256:{file_hash(self.file)}"}

    def launch(self, reader: TextModel) -> dict[str, Any]:
        self.file = model_path(self.model_file, reader)
        if not self.file.is_file():
            raise UserError(f"engine.model_file={self.model_file} is not a file")
        names = ("k", "v", "flash_attention", "rotation", "gpu_layers", "swa_full")
        return {"model_file": str(self.file), **{name: getattr(self, name) for name in names}, **self.settings(reader)}

    def cache_bytes(self, tokens: int) -> CacheBytes:
        bits = BITS[self.k], BITS[self.v or self.k]
        # llama_context_default_params has swa_full = true, and llama-cpp-python leaves it so; of some models with a
        # window, such as the first Mistral, llama.cpp keeps all tokens in any case
        windowed = self.swa_full is False and self.windows
        return CacheBytes(self.reported, stated_bytes(self.reader, tokens, *bits, windowed))
