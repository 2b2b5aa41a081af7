"""The reserve ratio: SpindleKV's formula 15, and the bytes that are stored.

r = mean over layers of r1·r2·r3, with r1 = retained vectors / all vectors, r2 = codebook entries / retained vectors
and r3 the size of an entry with its reference; without a codebook r2 = r3 = 1. "All vectors" are the vectors of the
heads in `ratio_over`: the model's KV heads, or its query heads if each query head stores its own selection. Query heads
count g times the model's cache, so that r can be small although no bytes are saved.

The formula charges a reference per codebook entry, though every retained vector has its own, and, as printed, no
magnitude: r_corrected is the mean of r1·(r2 + overhead), with both. r_bytes is measured: stored bytes over FullKV's.

Methods without a codebook express their analytic ratio in the same factors. Quantisation keeps every vector (r2 = 1)
but makes it smaller: r3 is the bits of a stored vector, with scale and minimum, over the bits of a raw vector. Merging
two layers leaves one direction for two vectors (r2 = 1/2), plus magnitudes and unmerged tokens (r3).

If some layers have a sliding window or a state of fixed size, these ratios cover the layers with full attention, which
methods compress. `fields` adds the other layers, whose size no method changes: r and r_bytes then cover all layers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from kvbench.cache.eviction_cuts import Cuts
from kvbench.cache.kept_positions import KeptPositions

RatioOver = Literal["kv_heads", "query_heads"]


@dataclass(frozen=True)
class Kept:
    """The vectors that one layer retained of a prompt: keys and values, over all heads of `ratio_over`."""

    nominal: int  # tokens per head by the allocation
    retained: int  # number of retained vectors
    total: int  # number of all vectors
    r2: float = 1.0  # codebook entries / retained vectors
    r3: float = 1.0  # size of a stored vector or entry, as formula 15 prints it, relative to a raw vector
    overhead: float | None = None  # references and magnitudes per retained vector, relative to a vector
    positions: KeptPositions | None = None  # None if an entry is pooled from several tokens
    ratio_over: RatioOver = "kv_heads"
    per_head: tuple[int, ...] | None = None  # tokens that each head keeps, if heads keep different numbers
    cuts: Cuts | None = field(default=None, compare=False)  # None if tokens are not ranked by one score each

    @classmethod
    def tokens(
        cls,
        nominal: int,
        kept: int,
        n: int,
        heads: int,
        r2: float = 1.0,
        r3: float = 1.0,
        positions: KeptPositions | None = None,
        ratio_over: RatioOver = "kv_heads",
    ) -> "Kept":
        """`kept` of n tokens in each of `heads` heads, stored unchanged unless r2 or r3 differ from 1."""
        return cls(nominal, 2 * heads * kept, 2 * heads * n, r2, r3, positions=positions, ratio_over=ratio_over)

    @property
    def r1(self) -> float:
        """The share of vectors that is retained."""
        return self.retained / self.total

    @property
    def corrected(self) -> float:
        """The layer's ratio with references and magnitudes counted per retained vector."""
        return self.r1 * self.r2 * self.r3 if self.overhead is None else self.r1 * (self.r2 + self.overhead)


@dataclass(frozen=True)
class ReserveRatio:
    """Means over the layers that are compressed; `r` is the mean of the products, not the product of the means."""

    r1: float
    r2: float
    r3: float
    r: float
    r_corrected: float  # equals r if a method adds no overhead per retained vector
    r_bytes: float
    ratio_over: RatioOver = "kv_heads"  # heads whose vectors r and its factors count
    full_bytes: int = 0  # FullKV's bytes of these layers

    @classmethod
    def from_layers(cls, layers: Sequence[Kept], stored_bytes: int, full_bytes: int) -> "ReserveRatio":
        """stored_bytes: bytes of the compressed layers; full_bytes: FullKV's bytes, with GQA, for the same prompt."""
        if not layers:  # no layer is compressed
            return cls(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
        return cls(
            r1=fmean(layer.r1 for layer in layers),
            r2=fmean(layer.r2 for layer in layers),
            r3=fmean(layer.r3 for layer in layers),
            r=fmean(layer.r1 * layer.r2 * layer.r3 for layer in layers),
            r_corrected=fmean(layer.corrected for layer in layers),
            r_bytes=stored_bytes / full_bytes,
            ratio_over=max(layer.ratio_over for layer in layers),  # query_heads if any layer counts them
            full_bytes=full_bytes,
        )

    def over_all(self, window_bytes: int) -> "ReserveRatio":
        """The ratios of all layers, if layers that are not compressed hold `window_bytes`.

        r, r_corrected and r_bytes become means weighted by FullKV's bytes.
        """
        if not window_bytes:
            return self
        total = self.full_bytes + window_bytes
        ratios = {name: getattr(self, name) for name in ("r", "r_corrected", "r_bytes")}
        means = {name: (value * self.full_bytes + window_bytes) / total for name, value in ratios.items()}
        return replace(self, **means, full_bytes=total)

    def fields(self, window_bytes: int = 0) -> dict[str, Any]:
        """The fields of a record: `over_all`, and the ratios of the compressed layers alone."""
        overall = self.over_all(window_bytes)
        fields = asdict(overall)
        del fields["full_bytes"]
        if window_bytes:
            floor = window_bytes / overall.full_bytes
            alone = {"r_full": self.r, "r_bytes_full": self.r_bytes, "r_bytes_floor": floor}
            fields |= alone | {"window_bytes": window_bytes}
        return fields
