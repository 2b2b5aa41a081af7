"""OpenVINO GenAI in a separate process: the precision of its cache, and its eviction of tokens."""

from pathlib import Path
from typing import Any, Literal

from kvbench.engines.base import CacheBytes
from kvbench.engines.in_worker import InWorker, in_label, model_path
from kvbench.errors import UserError
from kvbench.models import TextModel
from kvbench.utils.checked import NonNegative, Positive, Share, checked
from kvbench.utils.hashing import digest, file_hash

NETWORK = ("openvino_model.xml", "openvino_model.bin")  # files of a folder in OpenVINO's format
# Options that decide which tokens are evicted.
EVICTION = ("max_cache_size", "aggregation", "start_size", "recent_size", "snapkv_window", "rotation")
CRUSH = ("kvcrush", "kvcrush_anchor")
SPARSE = ("sparse_prefill", "sparse_dense", "sparse_start", "sparse_recent", "sparse_threshold")
FLAGS = (*CRUSH, *SPARSE, "prefix_caching")


@checked(prefix="engine.")
class OpenVINO(InWorker):
    """A GGUF file, or a folder in OpenVINO's format, with OpenVINO's continuous batching."""

    precision: Literal["f32", "f16", "bf16", "u8", "u4", "u3"] | None = None  # of K and V; None: the device's default
    max_cache_size: Positive | None = None  # tokens that are kept from the first generated token on; None: all
    aggregation: Literal["SUM", "NORM_SUM", "ADAPTIVE_RKV"] = "NORM_SUM"  # of a token's attention over the steps
    start_size: Positive = 32  # first tokens that are never evicted
    recent_size: Positive = 128  # last tokens that are never evicted
    snapkv_window: NonNegative = 8  # last tokens of the prompt whose attention counts; 0: all tokens
    rotation: bool = False  # rotate the kept keys to positions without gaps
    kvcrush: Positive | None = None  # number of blocks of max_cache_size that KVCrush chooses; None: no KVCrush
    kvcrush_anchor: Literal["RANDOM", "ZEROS", "ONES", "MEAN", "ALTERNATING"] = "RANDOM"
    sparse_prefill: Literal["TRISHAPE", "XATTENTION"] | None = None  # prefill with sparse attention; None: full
    sparse_dense: Positive = 100  # last tokens of the prompt that attend to the whole prompt
    sparse_start: Positive = 128  # first tokens that all other tokens attend to (TRISHAPE)
    sparse_recent: Positive = 1920  # latest tokens that all other tokens attend to (TRISHAPE)
    sparse_threshold: Share = 0.8  # share of attention in the blocks that are read (XATTENTION)
    prefix_caching: bool = False  # read shared beginnings of prompts only once
    compute: Literal["f32", "f16", "bf16"] = "f32"
    model_file: str | None = None  # a GGUF file or a folder; None: the file of a model from PyPI
    device: str = "CPU"
    top = 1  # it gives only the log-probability of the chosen token
    environment = ".venv-openvino"
    requirement = "'openvino-genai==2026.4.1.0'"
    script = Path(__file__).with_name("openvino_worker.py")

    def __post_init__(self) -> None:
        kept = self.start_size + self.recent_size
        if self.max_cache_size is not None and self.max_cache_size <= kept:
            raise UserError(
                f"engine.max_cache_size={self.max_cache_size} must be above engine.start_size + engine.recent_size = "
                f"{self.start_size} + {self.recent_size}, the tokens that are never evicted"
            )
        if self.kvcrush and (self.max_cache_size is None or self.aggregation == "ADAPTIVE_RKV"):
            raise UserError(
                "engine.kvcrush chooses among tokens that eviction keeps: it needs engine.max_cache_size, and "
                "engine.aggregation=SUM or NORM_SUM"
            )
        if self.kvcrush is None and self.named(CRUSH):
            raise UserError("engine.kvcrush_anchor needs engine.kvcrush")
        if self.sparse_prefill is None and (extra := [*self.named(SPARSE)]):
            raise UserError(f"engine.{extra[0]} needs engine.sparse_prefill=TRISHAPE or XATTENTION")
        parts = ["openvino", self.precision or "default"]
        parts += [self.aggregation, str(self.max_cache_size)] if self.max_cache_size else []
        self.label = self.label or " ".join(parts) + in_label(self.named(FLAGS))

    @property
    def parameters(self) -> dict[str, Any]:
        names = ("precision", "compute", "device", *(EVICTION if self.max_cache_size else ()))
        return {"engine": "openvino", **{name: getattr(self, name) for name in names}, **self.named(FLAGS)}

    def connect(self, reader: TextModel) -> None:
        description = self.start(reader)
        self.reported, self.token_bytes = description["reported_bytes"], description["token_bytes"]
        self.block = description["block"]
        versions = {name: description[name] for name in ("version", "genai")}
        self.about = {**versions, "model_file": f"sha256:{hash_of(self.file)}"}

    def cannot_score(self) -> str | None:
        if self.max_cache_size is None:
            return None
        return f"engine.max_cache_size={self.max_cache_size} evicts only after a prompt: it does not affect a score"

    def launch(self, reader: TextModel) -> dict[str, Any]:
        self.file = model_path(self.model_file, reader)
        if self.file.is_dir() and not (self.file / NETWORK[0]).is_file():
            raise UserError(f"engine.model_file={self.model_file} has no {NETWORK[0]}")
        names = ("precision", "compute", "device", *EVICTION, *FLAGS)
        return {"model_file": str(self.file), **{name: getattr(self, name) for name in names}, **self.settings(reader)}

    def cache_bytes(self, tokens: int) -> CacheBytes:
        """Stated bytes: the whole blocks that hold the prompt, or the tokens that eviction keeps of it."""
        tokens = min(tokens, self.max_cache_size or tokens)
        blocks = -(-tokens // self.block)
        return CacheBytes(self.reported, round(blocks * self.block * self.token_bytes))


def hash_of(model: Path) -> str:
    """The hash of a file, or of the network and the weights in a folder."""
    if model.is_file():
        return file_hash(model)
    return digest([file_hash(model / name) for name in NETWORK])
