"""Keys or values rotated and rounded channel by channel, and values rounded token by token."""

from abc import abstractmethod
from functools import lru_cache

import torch
from torch import Tensor

from kvbench.cache.base import Growing
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.methods.turboquant.lloyd_max import midpoints, normal_levels
from kvbench.ops.norms import float32_norm
from kvbench.ops.not_finite import nan_for_infinity
from kvbench.ops.rotation import Rotation, rotation
from kvbench.ops.small_codes import code_table, look_up, pack_codes, unpack_codes

HALF = torch.finfo(torch.float16)
STEP = 2.0**-24  # float16's smallest number above 0


class SmallCodes(CodedSequence):
    """Rows as packed codes of 2, 3 or 4 bits, with a few float16 numbers per row."""

    def __init__(self, rows: Tensor, bits: int):
        self.dtype, (self.heads, _, self.width), self.bits = rows.dtype, rows.shape, bits
        codes, *numbers = self.encoded(rows)
        self.parts = [Growing(codes.to(torch.uint8)), *(Growing(x.half()) for x in numbers)]

    @abstractmethod
    def encoded(self, rows: Tensor) -> list[Tensor]:
        """Codes of rows [heads, t, head_dim · bits / 8], whose lowest eight bits are stored, and numbers [heads, t, 1],
        which are stored in float16; the first is the scale.
        """

    @property
    @abstractmethod
    def levels(self) -> tuple[float, ...]:
        """The values of codes 0, 1, …"""

    def decoded(self, tokens: slice) -> Tensor:
        codes = self.parts[0].buffer[:, tokens]
        return unpack_codes(codes, self.bits, code_table(self.levels, self.bits, codes.device))

    def scale(self, count: int) -> Tensor:
        return self.parts[1].buffer[:, :count, 0]

    @property
    def share(self) -> float:
        row = self.width * self.bits / 8 + 2 * (len(self.parts) - 1)
        return float(row / (self.width * self.dtype.itemsize))


class RotatedSequence(SmallCodes):
    """Rows' lengths and rotated directions, each channel rounded to a level of the normal distribution.

    Channels of rotated directions are distributed like normal numbers of variance 1 / head_dim, for any rows. Attention
    rotates queries and outputs, never rows.
    """

    def __init__(self, rows: Tensor, bits: int, kind: Rotation, seed: int, norm_correction: bool):
        """norm_correction: divide a row's length by the length of its rounded direction, which is shorter than 1."""
        self.kind, self.seed, self.norm_correction = kind, seed, norm_correction
        super().__init__(rows, bits)

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(level / self.width**0.5 for level in normal_levels(self.bits))

    def encoded(self, rows: Tensor) -> list[Tensor]:
        rows = nan_for_infinity(rows)
        lengths = float32_norm(rows, keepdim=True)
        # a zero row is 0 / 0: its codes are arbitrary, and its length is 0
        codes = torch.bucketize(
            self.to_codes((rows / lengths).float()), _edges(self.levels, rows.device), out_int32=True
        )
        if self.norm_correction:
            levels = _one_by_one(self.levels, rows.device)
            lengths = lengths / torch.linalg.vector_norm(look_up(levels, codes), dim=-1, keepdim=True)
        return [pack_codes(codes, self.bits), lengths.clamp_(max=HALF.max)]

    def to_codes(self, rows: Tensor) -> Tensor:
        return rows @ rotation(self.kind, self.width, self.seed, rows.device).T

    def from_codes(self, rows: Tensor) -> Tensor:
        return rows @ rotation(self.kind, self.width, self.seed, rows.device)


class UniformSequence(SmallCodes):
    """Values in equal steps between each token's smallest and largest channel, not rotated."""

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(float(code) for code in range(2**self.bits))

    def encoded(self, rows: Tensor) -> list[Tensor]:
        rows = nan_for_infinity(rows)
        low, high = rows.float().aminmax(dim=-1, keepdim=True)
        low = low.clamp_(-HALF.max, HALF.max).half()
        step = ((high - low) / (2**self.bits - 1)).clamp_(STEP, HALF.max).half()
        codes = ((rows - low.float()) / step + 0.5).clamp_(0, 2**self.bits - 1).int()  # half a step is rounded up
        return [pack_codes(codes, self.bits), step, low]

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return super().weighted_sum(weights) + weights @ self.parts[2].buffer[:, : weights.shape[-1]].float()

    def restored(self) -> Tensor:
        return super().restored() + self.parts[2].view


@lru_cache(maxsize=64)
def _edges(levels: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(midpoints(list(levels)), dtype=torch.float32).to(device)


@lru_cache(maxsize=64)
def _one_by_one(levels: tuple[float, ...], device: torch.device) -> Tensor:
    """The levels one by one, for `look_up`: float32 [levels, 1]."""
    return torch.tensor(levels, dtype=torch.float32)[:, None].to(device)
