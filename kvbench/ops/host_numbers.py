"""Reading numbers from a device."""

import torch
from torch import Tensor


def read(*values: Tensor) -> list[list[int]]:
    """The numbers of each of `values`, integers or booleans, [] or [count], with a single wait for the device."""
    flat = [value.reshape(-1).long() for value in values]
    numbers = iter(torch.cat(flat).tolist())
    return [[next(numbers) for _ in range(len(part))] for part in flat]
