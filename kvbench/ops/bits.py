"""Booleans packed into bytes."""

import torch
import torch.nn.functional as F
from torch import Tensor


def _bit(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)


def pack_bits(mask: Tensor) -> Tensor:
    """Booleans [heads, len] as uint8 [heads, ceil(len / 8)], the first in the lowest bit."""
    padded = F.pad(mask.to(torch.uint8), (0, -mask.shape[1] % 8)).unflatten(1, (-1, 8))
    return (padded << _bit(mask.device)).sum(dim=-1, dtype=torch.uint8)


def unpack_bits(bits: Tensor, length: int) -> Tensor:
    """The inverse of `pack_bits`: booleans [heads, length]."""
    return (bits[..., None] >> _bit(bits.device) & 1).flatten(1)[:, :length].bool()
