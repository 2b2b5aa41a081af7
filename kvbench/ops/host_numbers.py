"""Numbers that lie on a device, read by the host."""

import torch
from torch import Tensor


def read(*values: Tensor) -> list[list[int]]:
    """The numbers of each of `values`, integers or booleans, [] or [count]: with one wait for all."""
    flat = [value.reshape(-1).long() for value in values]
    numbers = iter(torch.cat(flat).tolist())
    return [[next(numbers) for _ in range(len(part))] for part in flat]
