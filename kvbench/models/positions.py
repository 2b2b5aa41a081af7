"""Positions of tokens that follow others."""

import torch
from torch import Tensor


def positions_after(seen: int, ids: Tensor) -> Tensor:
    """The positions [1, q] of ids [sequences, q] after `seen` tokens.

    Without them, some models (Bamba) count from 0 in every pass.
    """
    return torch.arange(seen, seen + ids.shape[1], device=ids.device)[None]
