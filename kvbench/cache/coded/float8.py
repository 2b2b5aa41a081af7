"""Keys or values as float8 numbers."""

from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import Growing
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.ops.float8 import E4M3, LARGEST, from_float8, to_float8
from kvbench.ops.norms import float32_norm
from kvbench.ops.not_finite import nan_for_infinity

Scale = Literal["unit", "head", "token", "channel"]
SMALLEST = torch.finfo(torch.float32).tiny
# The dimensions of [heads, len, head_dim] that share a scale.
DIMS: dict[Scale, int | tuple[int, ...]] = {"head": (1, 2), "token": 2, "channel": 1}


class Float8Sequence(CodedSequence):
    """Rows in e4m3, divided by a scale: 1, or the largest absolute value over 448 of a head, a token or a channel.

    The scales of heads and channels come from the first rows: larger numbers of later rows are clipped.
    """

    def __init__(self, rows: Tensor, scale: Scale):
        """rows [heads, len, head_dim]; scale: unit (none), or the numbers that share a scale."""
        self.dtype, (self.heads, _, self.width), self.kind = rows.dtype, rows.shape, scale
        # float32 [heads, 1, 1 or head_dim]
        self.shared = None if scale in ("unit", "token") else scale_of(rows, scale)
        self.parts = [Growing(part) for part in self.encoded(rows)]

    def encoded(self, rows: Tensor) -> list[Tensor]:
        if self.kind == "token":
            scales = scale_of(rows, "token")  # infinite for a token with an infinite number, which becomes NaN
            return [(rows / scales).to(E4M3), scales]  # within ±448, without to_float8's clamp
        rows = nan_for_infinity(rows)
        return [to_float8(rows if self.shared is None else rows / self.shared)]

    def decoded(self, tokens: slice) -> Tensor:
        return from_float8(self.parts[0].buffer[:, tokens])

    def scale(self, count: int) -> Tensor | None:
        return self.parts[1].buffer[:, :count, 0] if self.kind == "token" else None

    def to_codes(self, rows: Tensor) -> Tensor:
        return rows if self.shared is None else rows * self.shared

    from_codes = to_codes


def scale_of(rows: Tensor, kind: Scale, most: float = LARGEST) -> Tensor:
    """The largest absolute value over `most`, float32 [heads, 1 or len, 1 or head_dim], above 0; 1 without rows."""
    if not rows.shape[1]:
        return rows[:, :0].float().sum(dim=DIMS[kind], keepdim=True) + 1
    largest = float32_norm(rows, float("inf"), dim=DIMS[kind], keepdim=True)
    return largest.div_(most).clamp_(min=SMALLEST)
