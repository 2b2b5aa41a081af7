"""Numbers looked up in a table, two or four at a time."""

import torch
from torch import Tensor

# A row of the table is copied as one number of its size, much faster on a CPU than as a row of floats.
_AS_ONE = {1: torch.float32, 2: torch.complex64, 4: torch.complex128}


def look_up(table: Tensor, codes: Tensor) -> Tensor:
    """The rows of table [entries, width] float32, width 1, 2 or 4, at int32 codes [..., m]: [..., m · width]."""
    entries = table.view(_AS_ONE[table.shape[1]])[:, 0]
    found = entries.index_select(0, codes.flatten())
    return found.view(torch.float32).view(*codes.shape[:-1], codes.shape[-1] * table.shape[1])
