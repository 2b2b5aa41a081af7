"""Keys or values as float8 numbers."""

from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import Growing, filled
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.ops.float8 import E4M3, LARGEST, from_float8, to_float8

Scale = Literal["unit", "head", "token", "channel"]
SMALLEST = torch.finfo(torch.float32).tiny
DIMS = {"head": (1, 2), "token": 2, "channel": 1}  # of [heads, len, head_dim], those that share a scale


class Float8Sequence(CodedSequence):
    """Rows in e4m3, divided by a scale: 1, or the largest absolute value over 448 of a head, a token or a channel.

    The scales of heads and channels are those of the first rows: later ones beyond them are cut off.
    """

    def __init__(self, rows: Tensor, scale: Scale):
        """rows [heads, len, head_dim]; `scale` names what shares one."""
        self.dtype, self.kind = rows.dtype, scale
        scales = None if scale == "unit" else scale_of(rows, scale)  # float32 [heads, 1 or len, 1 or head_dim]
        self.by_token = Growing(scales) if scale == "token" else None
        self.scales: Tensor | None = None if scale == "token" else scales
        self.codes = Growing(self._coded(rows, scales))

    @property
    def length(self) -> int:
        return int(self.codes.length)

    @property
    def head_dim(self) -> int:
        return int(self.codes.buffer.shape[-1])

    def append(self, rows: Tensor) -> None:
        scales = self.scales
        if self.by_token is not None:
            scales = scale_of(rows, "token")
            self.by_token.append(scales)
        self.codes.append(self._coded(rows, scales))

    def decoded(self, tokens: slice) -> Tensor:
        return from_float8(self.codes.view[:, tokens])

    def scale(self) -> Tensor | None:
        return None if self.by_token is None else self.by_token.view[..., 0]

    def to_codes(self, rows: Tensor) -> Tensor:
        return rows if self.scales is None else rows * self.scales

    from_codes = to_codes

    def tensors(self) -> list[Tensor]:
        scales = self.scales if self.by_token is None else self.by_token.buffer
        return [self.codes.buffer] if scales is None else [self.codes.buffer, scales]

    @property
    def filled_bytes(self) -> int:
        return filled(self.codes, self.scales if self.by_token is None else self.by_token)

    def _coded(self, rows: Tensor, scales: Tensor | None) -> Tensor:
        if self.kind == "token":
            return (rows / scales).to(E4M3)  # within ±448, without to_float8's clamp
        return to_float8(rows if scales is None else rows / scales)

    @property
    def share(self) -> float:
        scales = self.scales if self.by_token is None else self.by_token.view
        stored = self.codes.view.nbytes + (0 if scales is None else scales.nbytes)
        return float(stored / max(self.codes.view.numel() * self.dtype.itemsize, 1))


def scale_of(rows: Tensor, kind: Scale) -> Tensor:
    """The largest absolute value over 448, float32 [heads, 1 or len, 1 or head_dim], above 0; 1 of no rows."""
    if not rows.shape[1]:
        return rows[:, :0].float().sum(dim=DIMS[kind], keepdim=True) + 1
    largest = torch.linalg.vector_norm(rows, float("inf"), dim=DIMS[kind], keepdim=True, dtype=torch.float32)
    return largest.div_(LARGEST).clamp_(min=SMALLEST)
