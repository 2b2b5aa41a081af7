"""Asymmetric quantisation in groups, with codes packed into bytes."""

from dataclasses import dataclass

import torch
from torch import Tensor

TOKENS, CHANNELS = 1, 2  # the axis of [heads, len, head_dim] along which a group runs


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes below 2^bits, uint8 [..., width], as uint8 [..., width · bits / 8], the first in the lowest bits."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    grouped = codes.unflatten(-1, (codes.shape[-1] * bits // 8, len(shifts)))
    return (grouped << shifts).sum(dim=-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """The inverse of `pack`: uint8 [..., width]."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return (packed[..., None] >> shifts & (2**bits - 1)).flatten(-2)


@dataclass(frozen=True)
class Quantiser:
    """Asymmetric rounding to `bits` bits in groups of `group` elements along `axis`.

    code = round((x - min) / scale), scale = (max - min) / (2^bits - 1). Scale and minimum are kept in the dtype
    of x, and codes are computed with what is kept: the minimum is an element of x and exact, so an element is
    off by at most scale / 2 (where scale is a normal number). A constant group has scale 1 and comes back exactly.
    """

    bits: int
    group: int
    axis: int

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [heads, t, head_dim] → packed codes [heads, t, head_dim · bits / 8], scale and minimum.

        These two are [heads, t / group, head_dim] (axis TOKENS) or [heads, t, head_dim / group] (CHANNELS).
        """
        grouped = self._grouped(x.float())
        low, high = grouped.aminmax(dim=self.axis + 1, keepdim=True)
        scale = ((high - low) / (2**self.bits - 1)).to(x.dtype)
        scale.masked_fill_(scale == 0, 1)
        codes = ((grouped - low) / scale.float()).round_().clamp_(0, 2**self.bits - 1)
        codes = codes.to(torch.uint8).flatten(self.axis, self.axis + 1)
        return pack(codes, self.bits), scale.squeeze(self.axis + 1), low.to(x.dtype).squeeze(self.axis + 1)

    def restore(self, packed: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
        """The rows [heads, t, head_dim] that codes, scale and minimum stand for, in the dtype of `scale`."""
        codes = self._grouped(unpack(packed, self.bits).float())
        scales, minima = (x.float().unsqueeze(self.axis + 1) for x in (scale, minimum))
        limit = torch.finfo(scale.dtype).max  # a scale rounded up could pass it
        rows = torch.addcmul(minima, codes, scales).clamp_(-limit, limit)
        return rows.to(scale.dtype).flatten(self.axis, self.axis + 1)

    def bits_per_element(self, element_bits: int) -> float:
        """The codes and an element's part of scale and minimum, where an element has `element_bits` bits."""
        return self.bits + 2 * element_bits / self.group

    def _grouped(self, x: Tensor) -> Tensor:
        return x.unflatten(self.axis, (x.shape[self.axis] // self.group, self.group))
