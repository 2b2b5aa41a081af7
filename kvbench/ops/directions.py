"""Directions of vectors with exact cosine similarities, which are the same on every device.

The components of unit vectors are rounded to multiples of 2^-25, about float32's precision. Their products are
multiples of 2^-50 and sum to less than 2, so float64 adds them without rounding in any order. A pair therefore has the
same similarity for any tile size, thread count or device. For the same reason the norms before the rounding are sums of
squares in a fixed order.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GRID = 2.0**25
TINY = torch.finfo(torch.float32).tiny
# Rows of one tile of similarities: a constant, so memory is O(n · TILE).
TILE = 256


def directions(x: Tensor) -> Tensor:
    """x [N, d] of any dtype as unit vectors on the grid, float64 [N, d]; a zero vector stays zero."""
    return in_steps(x).div_(GRID)


def in_steps(x: Tensor) -> Tensor:
    """`directions` in steps of the grid: whole numbers, float64 [N, d]."""
    x = x.float().double()
    norms = square_sums(x).sqrt_()[..., None]
    return (x / norms.clamp_min_(TINY)).mul_(GRID).round_()


def square_sums(x: Tensor) -> Tensor:
    """Sums of squares over the last dimension: the upper half is added to the lower half until one number is left."""
    width = x.shape[-1]
    squares = F.pad(x * x, (0, 2 ** math.ceil(math.log2(max(width, 1))) - width))
    while squares.shape[-1] > 1:
        lower, upper = squares.chunk(2, dim=-1)
        squares = lower + upper
    return squares[..., 0]


def bound(theta: float) -> float:
    """theta as a bound of rounded cosines: infinity for theta = 1, because no exact cosine exceeds 1."""
    return theta if theta < 1 else math.inf
