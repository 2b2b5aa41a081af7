"""Asymmetric quantisation in groups, with codes packed into bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.not_finite import clamp_to_range_
from kvbench.ops.operator import operator

TOKENS, CHANNELS = 1, 2  # the axis of [heads, len, head_dim] along which a group runs


def pack(codes: Tensor, bits: int, dim: int = -1) -> Tensor:
    """Codes below 2^bits, uint8 with `group` elements along `dim`, as uint8 with group · bits / 8 bytes along it.

    With 4 bits and 32 codes, byte j of 16 holds code j in its lowest bits and code j + 16 in its highest. So a plane,
    the same bits of consecutive bytes, is a run of consecutive codes.
    """
    dim = dim % codes.dim()
    first, *planes = codes.unflatten(dim, (8 // bits, -1)).unbind(dim)
    packed = first.clone()
    for number, plane in enumerate(planes, start=1):
        packed |= plane << number * bits
    return packed


def write_planes(packed: Tensor, bits: int, planes: Sequence[Tensor]) -> None:
    """Write the codes of `packed`, by their place in a byte, lowest bits first, to uint8 tensors of its shape."""
    torch.bitwise_and(packed, 2**bits - 1, out=planes[0])
    for number, plane in enumerate(planes[1:], start=1):
        torch.bitwise_right_shift(packed, number * bits, out=plane)
        if number < len(planes) - 1:
            plane.bitwise_and_(2**bits - 1)


def unpack(packed: Tensor, bits: int, dim: int = -1) -> Tensor:
    """The inverse of `pack`: uint8 with 8 / bits times as many elements along `dim`."""
    if bits == 8:
        return packed
    dim = dim % packed.dim()
    codes = packed.new_empty(*packed.shape[:dim], 8 // bits, *packed.shape[dim:])
    write_planes(packed, bits, codes.unbind(dim))
    return codes.flatten(dim, dim + 1)


class Sizes(NamedTuple):
    """Numbers of rows in which quantised rows are stored."""

    codes: int
    scale: int
    minimum: int


class Quantised(NamedTuple):
    codes: Tensor  # uint8, packed
    scale: Tensor
    minimum: Tensor


@dataclass(frozen=True)
class Quantiser:
    """Asymmetric rounding to `bits` bits in groups of `group` elements along `axis`.

    code = round((x - min) / scale), scale = (max - min) / (2^bits - 1). Scale and minimum have the dtype of x, and
    codes are computed from these rounded values. The minimum is an element of x and exact, so the error of an element
    is at most scale / 2 (if scale is a normal number). A constant group has scale 1 and is restored exactly.
    """

    bits: int
    group: int
    axis: int

    def __call__(self, x: Tensor) -> Quantised:
        """x [heads, t, head_dim] → packed codes, scale and minimum.

        The codes of a group are packed together: [heads, t · bits / 8, head_dim] (axis TOKENS) or
        [heads, t, head_dim · bits / 8] (CHANNELS). Scale and minimum are [heads, t / group, head_dim] or
        [heads, t, head_dim / group].
        """
        return quantise(x, self.bits, self.group, self.axis)

    def sizes(self, t: int) -> Sizes:
        """How many rows the codes, scales and minima of t rows have."""
        if self.axis == CHANNELS:
            return Sizes(t, t, t)
        return Sizes(t * self.bits // 8, t // self.group, t // self.group)

    def restore(self, packed: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
        """The rows [heads, t, head_dim] of codes, scale and minimum, in the dtype of `scale`."""
        return dequantise(packed, scale, minimum, self.bits, self.group, self.axis)

    def bits_per_element(self, element_bits: int) -> float:
        """Bits of a code with its share of scale and minimum, which have `element_bits` bits each."""
        return self.bits + 2 * element_bits / self.group


def _fake_quantise(x: Tensor, bits: int, group: int, axis: int) -> Quantised:
    codes, groups = list(x.shape), list(x.shape)
    codes[axis] = x.shape[axis] * bits // 8
    groups[axis] = x.shape[axis] // group
    return Quantised(x.new_empty(codes, dtype=torch.uint8), x.new_empty(groups), x.new_empty(groups))


@operator(launches=1, fake=_fake_quantise)
def quantise(x: Tensor, bits: int, group: int, axis: int) -> Quantised:
    """The result of `Quantiser.__call__`."""
    grouped = _grouped(x.float(), group, axis)
    low, high = grouped.aminmax(dim=axis + 1, keepdim=True)
    scale = ((high - low) / (2**bits - 1)).to(x.dtype)
    scale.masked_fill_(scale == 0, 1)
    codes = ((grouped - low) / scale.float()).round_().clamp_(0, 2**bits - 1)
    codes = pack(codes.to(torch.uint8), bits, axis + 1).flatten(axis, axis + 1)
    return Quantised(codes, scale.squeeze(axis + 1), low.to(x.dtype).squeeze(axis + 1))


def _fake_dequantise(packed: Tensor, scale: Tensor, minimum: Tensor, bits: int, group: int, axis: int) -> Tensor:
    rows = list(scale.shape)
    rows[axis] = scale.shape[axis] * group
    return scale.new_empty(rows)


@operator(launches=1, fake=_fake_dequantise)
def dequantise(packed: Tensor, scale: Tensor, minimum: Tensor, bits: int, group: int, axis: int) -> Tensor:
    """The result of `Quantiser.restore`."""
    codes = unpack_groups(packed, bits, group, axis).float()
    scales, minima = (x.float().unsqueeze(axis + 1) for x in (scale, minimum))
    # a restored number could exceed the range of the scale's dtype if the scale was rounded up
    rows = clamp_to_range_(torch.addcmul(minima, codes, scales), scale.dtype)
    return rows.to(scale.dtype).flatten(axis, axis + 1)


def unpack_groups(packed: Tensor, bits: int, group: int, axis: int) -> Tensor:
    """The codes of `quantise`, uint8 with axis `axis` of the rows in groups: [..., groups, group, ...]."""
    return unpack(_grouped(packed, group * bits // 8, axis), bits, axis + 1)


def _grouped(x: Tensor, group: int, axis: int) -> Tensor:
    return x.unflatten(axis, (x.shape[axis] // group, group))
