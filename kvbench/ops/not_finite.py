"""Numbers out of a dtype's range: infinite ones, which codes cannot represent, and too large ones."""

import torch
from torch import Tensor


def nan_for_infinity(x: Tensor) -> Tensor:
    """x with NaN instead of infinity: formats preserve NaN, but would turn infinity into an ordinary number."""
    nan = float("nan")
    return x.nan_to_num(nan, nan, nan)  # one kernel


def clamp_to_range_(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x within the finite range of `dtype`, in place; torch itself refuses a limit that x's dtype cannot hold."""
    limit = min(torch.finfo(dtype).max, torch.finfo(x.dtype).max)
    return x.clamp_(-limit, limit)
