"""The base of block formats: blocks of neighbouring channels, each with its scale in a header and packed codes."""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.block_packing import code_bytes, pack
from kvbench.ops.block_values import block_values
from kvbench.ops.not_finite import nan_for_infinity

HALF = torch.finfo(torch.float16)


class Coded(NamedTuple):
    """Blocks [..., block]."""

    header: Tensor  # uint8 [..., header]
    codes: Tensor  # int32 [..., block]


class BlockFormat(ABC):
    """A format of `block` channels: a `header` with the scale, and in some formats a minimum, and a code per channel.

    Code c of a block with scale s and minimum m is the number s · levels[c] + m.
    """

    name: str
    block: int  # channels that share a scale
    header: int  # bytes before the codes
    bits: int  # bits of a code
    levels: tuple[float, ...]  # levels of codes 0, 1, …
    # The largest number of a block, for formats whose scales have a narrow range, so that all rows share a further
    # float32 scale; None: scales have the range of the rows.
    largest: float | None = None

    @property
    def block_bytes(self) -> int:
        return self.header + code_bytes(self.block, self.bits)

    @property
    def bits_per_element(self) -> float:
        """Bits per element, including its share of the header."""
        return 8 * self.block_bytes / self.block

    @abstractmethod
    def rounded(self, blocks: Tensor) -> Coded:
        """The headers and codes of float32 blocks [..., block]."""

    @abstractmethod
    def scale(self, header: Tensor) -> Tensor:
        """The scale, float32 [n], of headers uint8 [n, header]."""

    def minimum(self, header: Tensor) -> Tensor:
        """The number that is added to each number of a block, float32 [n]."""
        return torch.zeros(len(header), device=header.device)

    def encode(self, rows: Tensor) -> Tensor:
        """Rows [..., width], a multiple of `block`, as uint8 [..., width / block · block_bytes].

        A block with a number that is NaN or infinite becomes NaN.
        """
        header, codes = self.rounded(nan_for_infinity(rows.float()).unflatten(-1, (-1, self.block)))
        return torch.cat([header, pack(codes, self.bits)], dim=-1).flatten(-2)

    def decode(self, stored: Tensor) -> Tensor:
        """The numbers of bytes that `encode` returned: float32 [..., width]."""
        blocks = stored.unflatten(-1, (-1, self.block_bytes))
        flat = blocks.reshape(-1, self.block_bytes)
        header = flat[:, : self.header].contiguous()
        levels = table(self.levels, stored.device)
        values = block_values(flat, self.header, self.bits, levels, self.scale(header), self.minimum(header))
        return values.view(*blocks.shape[:-2], -1)


def half_bytes(*numbers: Tensor) -> Tensor:
    """Numbers [...] in float16, one after the other: uint8 [..., 2 · numbers]; clamped to float16's range."""
    halves = torch.stack([x.clamp(-HALF.max, HALF.max).half() for x in numbers], dim=-1)
    return halves.view(torch.uint8)


def halves(header: Tensor) -> Tensor:
    """The float16 numbers of headers uint8 [n, 2 · numbers]: float32 [n, numbers]."""
    return header.view(torch.float16).float()


@lru_cache(maxsize=64)
def table(levels: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(levels, dtype=torch.float32).to(device)
