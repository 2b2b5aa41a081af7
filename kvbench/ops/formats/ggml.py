"""The formats of llama.cpp's KV cache: blocks of 32 channels with a scale in float16.

Sources: `quantize_row_…_ref` of ggml-quants.c in ggml, and Python's `gguf`; the bytes are the same. A block whose scale
is beyond float16's range gets the largest scale; in ggml the scale is infinite.
"""

from itertools import pairwise

import torch
from torch import Tensor

from kvbench.ops.formats.base import BlockFormat, Coded, half_bytes, halves, table


class GgmlFormat(BlockFormat):
    block = 32
    header = 2

    def scale(self, header: Tensor) -> Tensor:
        return halves(header)[:, 0]


class Q8_0(GgmlFormat):
    """Integers from -127 to 127 times a scale, which is the largest absolute value over 127."""

    name, bits = "q8_0", 8
    levels = tuple(float(code - 256 if code > 127 else code) for code in range(256))

    def rounded(self, blocks: Tensor) -> Coded:
        scale = divided(blocks.abs().amax(dim=-1), 127)
        steps = blocks * inverse(scale)[..., None]
        magnitude = steps.abs()
        integers = magnitude.floor()
        integers += 2 * (magnitude - integers) >= 1  # half a step away from zero
        return Coded(half_bytes(scale), (integers * steps.sign()).int() & 255)


class Symmetric(GgmlFormat):
    """2^bits integers around 0 times a scale; the number of the largest magnitude becomes the lowest integer."""

    zero: int  # the code of 0

    def __init_subclass__(cls) -> None:
        cls.zero = 1 << cls.bits - 1
        cls.levels = tuple(float(code - cls.zero) for code in range(2**cls.bits))

    def rounded(self, blocks: Tensor) -> Coded:
        scale = extreme(blocks) / -self.zero
        codes = (blocks * inverse(scale)[..., None] + (self.zero + 0.5)).int()
        return Coded(half_bytes(scale), codes.clamp_(0, 2 * self.zero - 1))


class Q4_0(Symmetric):
    name, bits = "q4_0", 4


class Q5_0(Symmetric):
    name, bits = "q5_0", 5


class FromMinimum(GgmlFormat):
    """2^bits equal steps from the smallest number of a block to the largest; the smallest is in float16, too."""

    header = 4

    def __init_subclass__(cls) -> None:
        cls.levels = tuple(float(code) for code in range(2**cls.bits))

    def rounded(self, blocks: Tensor) -> Coded:
        low, high = blocks.aminmax(dim=-1)
        scale = divided(high - low, 2**self.bits - 1)
        codes = ((blocks - low[..., None]) * inverse(scale)[..., None] + 0.5).int()
        return Coded(half_bytes(scale, low), codes.clamp_(0, 2**self.bits - 1))

    def minimum(self, header: Tensor) -> Tensor:
        return halves(header)[:, 1]


class Q4_1(FromMinimum):
    name, bits = "q4_1", 4


class Q5_1(FromMinimum):
    name, bits = "q5_1", 5


class IQ4_NL(GgmlFormat):
    """16 levels that are denser around 0. The number of the largest magnitude gets the lowest level, each other number
    the nearest level; then the scale minimises the squared error, weighted by the squares of the numbers.

    ggml sums in another order, so its scale can be the next float16 number.
    """

    name, bits = "iq4_nl", 4
    levels = (-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0)
    edges = tuple((low + high) / 2 for low, high in pairwise(levels))
    smallest = 1e-15  # blocks with smaller magnitudes become 0

    def rounded(self, blocks: Tensor) -> Coded:
        first = divided(extreme(blocks), self.levels[0])
        first = torch.where(blocks.abs().amax(dim=-1) < self.smallest, 0, first)
        steps = blocks * inverse(first)[..., None]
        codes = torch.bucketize(steps, table(self.edges, blocks.device), right=True, out_int32=True)
        levels = table(self.levels, blocks.device)[codes]
        weights = steps.square()  # the squares of the numbers over first², because the squares could overflow
        better = (weights * levels * steps).sum(dim=-1) * inverse((weights * levels.square()).sum(dim=-1))
        return Coded(half_bytes(first * better), codes)


def divided(x: Tensor, by: float) -> Tensor:
    """x / by, rounded once on every device: a GPU would multiply by 1 / by if `by` were a plain number."""
    return x / torch.full_like(x, by)


def inverse(x: Tensor) -> Tensor:
    """1 / x, and 0 where x is 0."""
    return torch.where(x == 0, 0, 1 / x)


def extreme(blocks: Tensor) -> Tensor:
    """The number of the largest magnitude of each block [..., block], the first of equal magnitudes: [...]."""
    return blocks.gather(-1, blocks.abs().max(dim=-1, keepdim=True).indices)[..., 0]


GGML = {form.name: form for form in (Q8_0(), Q5_1(), Q5_0(), Q4_1(), Q4_0(), IQ4_NL())}
