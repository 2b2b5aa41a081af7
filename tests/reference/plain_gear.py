"""GEAR read vector by vector: X ≈ D + L + S, with L by the same iteration, written out."""

import torch
from torch import Tensor


def keys(rows: Tensor, bits: int, group: int | None, outliers: float, rank: int) -> Tensor:
    """Restored keys [heads, n, head_dim]: a vector is one channel of one head."""
    out = torch.empty_like(rows)
    for head in range(len(rows)):
        for channel in range(rows.shape[2]):
            out[head, :, channel] = vector(rows[head, :, channel], bits, group, outliers)
    return out + rest(rows - out, rank)


def values(rows: Tensor, bits: int, group: int | None, outliers: float, rank: int) -> Tensor:
    """Restored values: a vector is one token of all heads."""
    out = torch.empty_like(rows)
    for token in range(rows.shape[1]):
        out[:, token] = vector(rows[:, token].flatten(), bits, group, outliers).view(len(rows), -1)
    return out + rest(rows - out, rank)


def vector(x: Tensor, bits: int, group: int | None, outliers: float) -> Tensor:
    side = int(len(x) * outliers / 2 + 1e-9)
    order = x.argsort().tolist()
    apart = order[:side] + order[len(x) - side :]
    inner = x.clone()
    inner[apart] = x.mean()
    out = inner.clone()
    for start in range(0, len(x), group or len(x)):
        part = inner[start : start + (group or len(x))]
        step = (part.max() - part.min()) / (2**bits - 1)
        out[start : start + len(part)] = ((part - part.min()) / step).round() * step + part.min()
    out[apart] = x[apart]
    return out


def rest(error: Tensor, rank: int) -> Tensor:
    """Its part of a low rank, head by head: two rounds of products, and a third between orthonormal columns."""
    if not rank:
        return torch.zeros_like(error)
    start = torch.rand(error.shape[2], rank, generator=torch.Generator().manual_seed(0))
    made = []
    for x in error:
        right = x.T @ (x @ (x.T @ (x @ start)))
        right = torch.linalg.qr(right).Q
        left = torch.linalg.qr(x @ right).Q
        made.append(left @ (left.T @ x))
    return torch.stack(made)
