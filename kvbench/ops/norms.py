"""Norms of rows in any dtype."""

import torch
from torch import Tensor


def float32_norm(rows: Tensor, order: float = 2, dim: int | tuple[int, ...] = -1, keepdim: bool = False) -> Tensor:
    """torch.linalg.vector_norm, computed in float32 or wider, as float32; torch itself refuses to narrow float64."""
    wide = torch.promote_types(rows.dtype, torch.float32)
    return torch.linalg.vector_norm(rows, order, dim=dim, keepdim=keepdim, dtype=wide).float()
