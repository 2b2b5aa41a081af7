"""Keys before RoPE and values in levels fitted to the prompt; each token's most extreme numbers are stored apart."""

import math
from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.cache.base import Growing, filled
from kvbench.cache.coded.positions import KeyPositions
from kvbench.cache.coded.sequence import BlockwiseSequence
from kvbench.methods.kvquant.fitted_levels import fitted_levels
from kvbench.ops.small_codes import codes_together, pack_codes, unpack_codes


class Normal(NamedTuple):
    """Scale and offset of vectors, [t or 1, channels or 1] each."""

    scale: Tensor
    offset: Tensor


class Percentiles(NamedTuple):
    """The lower and the upper percentile of each column, [channels] each."""

    low: Tensor
    high: Tensor


class NonUniformSequence(BlockwiseSequence):
    """Vectors, each of one row with the channels of all heads, as codes, a scale and an offset, and outliers.

    A number x of a vector is coded as the level nearest to its quotient (x - offset) / scale; all vectors share the
    levels, which lie between -1 and 1. The outliers, the numbers with the largest and smallest quotients, are stored in
    the rows' dtype with their channels. The first `sinks` rows are stored uncompressed.
    """

    def __init__(self, rows: Tensor, bits: int, outliers: float, sinks: int):
        """rows [heads, len, head_dim]; outliers: share of the numbers that are outliers, half of it on each side."""
        self.dtype, (self.heads, _, self.width), self.bits = rows.dtype, rows.shape, bits
        self.side = outside(self.heads * self.width, outliers)
        self.raw = rows[:, :sinks].clone()
        x = self.flat(self.unrotated(rows, 0))
        self.fit(x[sinks:], outliers)
        quotients = self.quotients(x, *self.normal(x))
        coded = torch.ones_like(quotients, dtype=torch.bool)
        coded[:sinks] = False
        self.levels = fitted_levels(quotients, coded, 2**bits)
        self.parts = [Growing(part) for part in self.encoded(x)]

    def unrotated(self, rows: Tensor, start: int) -> Tensor:
        """Rows [heads, t, head_dim] from row `start` on, in the form that is coded: float32, keys before RoPE."""
        return rows.float()

    def rotated(self, rows: Tensor, tokens: slice) -> Tensor:
        """The inverse of `unrotated`."""
        return rows

    @abstractmethod
    def fit(self, x: Tensor, outliers: float) -> None:
        """Fit the numbers that all vectors share to the prompt's vectors, x float32 [t, heads · head_dim]."""

    @abstractmethod
    def normal(self, x: Tensor) -> Normal:
        """Scale and offset of vectors x [t, channels], in the rows' dtype."""

    @property
    @abstractmethod
    def by_token(self) -> bool:
        """Whether each vector has its own scale and offset, which are stored after its outliers."""

    def quotients(self, x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        return (x - offset.float()) / scale.float()

    def encoded(self, x: Tensor) -> list[Tensor]:
        """The codes, the outliers' channels and the outliers of vectors x float32 [t, heads · head_dim]."""
        scale, offset = self.normal(x)
        quotients = self.quotients(x, scale, offset)
        codes = torch.bucketize(quotients, (self.levels[1:] + self.levels[:-1]) / 2, out_int32=True)
        ends = [quotients.topk(self.side, dim=1, largest=largest).indices for largest in (True, False)]
        channels = torch.cat(ends, dim=1)
        numbers = [x.gather(1, channels).to(self.dtype)]
        if self.by_token:
            numbers += [scale, offset]
        narrow = torch.int16 if x.shape[1] <= 2**15 else torch.int32
        return [pack_codes(codes, self.bits).to(torch.uint8), channels.to(narrow), torch.cat(numbers, dim=1)]

    @property
    def length(self) -> int:
        return int(self.parts[0].length)

    def append(self, rows: Tensor) -> None:
        for store, part in zip(self.parts, self.encoded(self.flat(self.unrotated(rows, self.length))), strict=True):
            store.append(part)

    def decoded(self, tokens: slice) -> Tensor:
        codes, channels, numbers = (part.view[tokens] for part in self.parts)
        outliers, scale, offset = numbers[:, : 2 * self.side], *self.stored_normal(numbers)
        table = self.levels[codes_together(self.bits, codes.device)]
        x = unpack_codes(codes, self.bits, table) * scale.float() + offset.float()
        x.scatter_(1, channels.long(), outliers.float())
        rows = self.rotated(x.unflatten(1, (self.heads, -1)).transpose(0, 1), tokens)
        first = tokens.start or 0
        if first < self.raw.shape[1]:
            rows[:, : self.raw.shape[1] - first] = self.raw[:, first : first + rows.shape[1]].float()
        return rows

    def stored_normal(self, numbers: Tensor) -> Normal:
        """Scale and offset of vectors with these stored numbers."""
        return Normal(numbers[:, -2:-1], numbers[:, -1:])

    def flat(self, rows: Tensor) -> Tensor:
        """Vectors [t, heads · head_dim] of rows [heads, t, head_dim]."""
        return rows.transpose(0, 1).flatten(1)

    def tensors(self) -> list[Tensor]:
        return [*(part.buffer for part in self.parts), self.levels, self.raw]

    def float32_tensors(self) -> list[Tensor]:
        return [self.levels]

    @property
    def filled_bytes(self) -> int:
        return filled(*self.parts, self.levels, self.raw)


class NonUniformKeys(NonUniformSequence):
    """Keys before RoPE. Each channel has a scale, half the distance between its two percentiles in the prompt, and an
    offset, their mean. Numbers beyond the percentiles that are not outliers are coded as the last level.
    """

    by_token = False

    def __init__(
        self,
        rows: Tensor,
        bits: int,
        outliers: float,
        sinks: int,
        positions: KeyPositions,
    ):
        self.positions = positions
        super().__init__(rows, bits, outliers, sinks)

    def unrotated(self, rows: Tensor, start: int) -> Tensor:
        return self.positions.undo(rows.float(), start)

    def rotated(self, rows: Tensor, tokens: slice) -> Tensor:
        return self.positions.redo(rows, tokens.start or 0)

    def fit(self, x: Tensor, outliers: float) -> None:
        low, high = percentiles(x, outliers / 2)
        scale = ((high - low) / 2).to(self.dtype).clamp_(min=torch.finfo(self.dtype).tiny)
        self.channels = torch.stack([scale, ((high + low) / 2).to(self.dtype)])

    def normal(self, x: Tensor) -> Normal:
        return Normal(self.channels[0], self.channels[1])

    def stored_normal(self, numbers: Tensor) -> Normal:
        return Normal(self.channels[0], self.channels[1])

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), self.channels, self.positions.stored]

    @property
    def filled_bytes(self) -> int:
        return super().filled_bytes + filled(self.channels, self.positions.stored)


class NonUniformValues(NonUniformSequence):
    """Values. Each token has a scale and an offset, from its largest and smallest numbers that are not outliers."""

    by_token = True

    def fit(self, x: Tensor, outliers: float) -> None:
        return None

    def normal(self, x: Tensor) -> Normal:
        ordered = x.sort(dim=1).values
        low, high = ordered[:, self.side : self.side + 1], ordered[:, -1 - self.side, None]
        scale = ((high - low) / 2).to(self.dtype).clamp_(min=torch.finfo(self.dtype).tiny)
        return Normal(scale, ((high + low) / 2).to(self.dtype))


def outside(width: int, share: float) -> int:
    """How many of `width` numbers lie at or above their upper percentile, the percentile 1 - share / 2."""
    return width - math.ceil((1 - share / 2) * (width - 1) - 1e-9) if share else 0


def percentiles(x: Tensor, tail: float) -> Percentiles:
    """The percentiles `tail` and 1 - `tail` of each column of x [t, channels], interpolated between neighbours; zeros
    if there are no rows."""
    if not len(x):
        return Percentiles(x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1]))
    ordered, place = x.sort(dim=0).values, tail * (len(x) - 1)
    below, between = int(place), place - int(place)
    after = min(below + 1, len(x) - 1)
    low = torch.lerp(ordered[below], ordered[after], between)
    return Percentiles(low, torch.lerp(ordered[-1 - below], ordered[-1 - after], between))
