"""Leverage: the share of each row in the span of all rows."""

import torch
from torch import Tensor


def ridge_leverage(rows: Tensor, gram: Tensor, ridge: float) -> Tensor:
    """x_jᵀ(G + ridge·I)⁻¹x_j of float64 rows x [heads, n, k] and a Gram matrix G [heads, k, k]: [heads, n].

    Overwrites G. The factorisation's status is not checked, which would be a wait: the ridge makes G definite.
    """
    gram.diagonal(dim1=1, dim2=2).add_(ridge)
    factor = torch.linalg.cholesky_ex(gram).L
    return torch.linalg.solve_triangular(factor, rows.mT, upper=False).square().sum(dim=1)
