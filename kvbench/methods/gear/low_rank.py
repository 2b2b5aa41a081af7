"""A matrix as a product of two thin ones, by a few rounds of subspace iteration from a fixed start."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    """Two thin matrices with the product left · rightᵀ."""

    left: Tensor  # [heads, t, rank]
    right: Tensor  # [heads, d, rank]


def low_rank(x: Tensor, rank: int, rounds: int) -> Factors:
    """Left [heads, t, rank] and right [heads, d, rank] of float32 x [heads, t, d] ≈ left · rightᵀ.

    The last round makes `left` orthonormal, so that `right` is the projection xᵀ · left. A few more rounds come closer
    to the best product of this rank; after many rounds float32 cannot tell the columns apart.
    """
    right = _start(x.shape[2], rank, x.device).expand(len(x), -1, -1)
    left = x @ right
    for again in reversed(range(rounds)):
        right = right if again else torch.linalg.qr(right).Q
        left = x @ right
        left = left if again else torch.linalg.qr(left).Q
        right = x.mT @ left
    return Factors(left, right)


@lru_cache(maxsize=64)
def _start(width: int, rank: int, device: torch.device) -> Tensor:
    """Uniform random numbers [width, rank], the same on every device."""
    return torch.rand(width, rank, generator=torch.Generator().manual_seed(0)).to(device)
