"""Multiples of a number, by which layouts of codes and of pages find places."""

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def multiples(count: int, step: int, device: torch.device, dtype: torch.dtype = torch.int32) -> Tensor:
    """0, step, 2 · step, …: [count], made once for each device."""
    return (torch.arange(count, dtype=dtype) * step).to(device)
