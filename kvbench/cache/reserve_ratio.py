"""The reserve ratio: SpindleKV's formula 15, and the bytes that are stored.

r = mean over layers of r1·r2·r3, with r1 = retained vectors / all vectors, r2 = codebook entries / retained vectors
and r3 the overhead of references and magnitudes; without a codebook r2 = r3 = 1. "All vectors" are those of the heads
in `ratio_over`: the model's own KV heads, or its query heads where each stores its own choice. The latter count g
times the model's own cache, so that r can be small where nothing was saved.

The formula also charges a reference and a magnitude per codebook entry, though every retained vector has its own:
r_corrected is the mean of r1·(r2 + overhead). r_bytes is measured: stored bytes over FullKV's bytes.

Methods without a codebook express their analytic ratio in the same factors. Quantisation keeps every vector (r2 = 1)
but makes it smaller: r3 is the bits of a stored vector, with scale and minimum, over those of a raw one. Merging two
layers leaves one direction for two vectors (r2 = 1/2), plus magnitudes and unmerged tokens (r3).

Where some layers have a sliding window or a state of fixed size, these ratios are of the layers with full attention,
which methods compress. `fields` adds the other layers, whose size no method changes: r and r_bytes are then of all.
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
    """What one layer retained of a prompt. Vectors count K and V, over all heads of `ratio_over`."""

    nominal: int  # tokens per head that the allocation asked for
    retained: int  # vectors kept
    total: int  # vectors there were
    r2: float = 1.0  # codebook entries / retained vectors
    r3: float = 1.0  # size of an entry with references and magnitudes, relative to a raw vector
    overhead: float | None = None  # references and magnitudes per retained vector, relative to a vector
    positions: KeptPositions | None = None  # None where an entry is pooled from several tokens
    ratio_over: RatioOver = "kv_heads"
    per_head: tuple[int, ...] | None = None  # tokens that each head kept, where each has its own number
    cuts: Cuts | None = field(default=None, compare=False)  # None where no scores were ranked, or not one by one

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
        return self.retained / self.total

    @property
    def corrected(self) -> float:
        """The layer's ratio with references and magnitudes paid per retained vector."""
        return self.r1 * self.r2 * self.r3 if self.overhead is None else self.r1 * (self.r2 + self.overhead)


@dataclass(frozen=True)
class ReserveRatio:
    """Means over the layers that are compressed; `r` is the mean of the products, not the product of the means."""

    r1: float
    r2: float
    r3: float
    r: float
    r_corrected: float  # r where a method adds nothing per retained vector
    r_bytes: float
    ratio_over: RatioOver = "kv_heads"  # heads whose vectors r and its factors count
    full_bytes: int = 0  # FullKV's of these layers

    @classmethod
    def of(cls, layers: Sequence[Kept], stored_bytes: int, full_bytes: int) -> "ReserveRatio":
        """stored_bytes: held by the compressed layers; full_bytes: by FullKV, with GQA, for the same prompt."""
        if not layers:  # none is compressed
            return cls(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
        return cls(
            r1=fmean(layer.r1 for layer in layers),
            r2=fmean(layer.r2 for layer in layers),
            r3=fmean(layer.r3 for layer in layers),
            r=fmean(layer.r1 * layer.r2 * layer.r3 for layer in layers),
            r_corrected=fmean(layer.corrected for layer in layers),
            r_bytes=stored_bytes / full_bytes,
            ratio_over=max(layer.ratio_over for layer in layers),  # query_heads where any layer counts them
            full_bytes=full_bytes,
        )

    def over_all(self, window_bytes: int) -> "ReserveRatio":
        """The ratios of all layers, where layers that are not compressed hold `window_bytes`.

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
