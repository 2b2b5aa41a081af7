"""Whole bits for components of different variances: the smallest squared error within a number of bits."""

import torch
from torch import Tensor

MOST = 8  # bits of a code


def allocate(variances: Tensor, rows: int, side: int, budget: float) -> Tensor:
    """Bits of each component, int64 [components], for float64 `variances` in descending order.

    b bits leave an error of variance / 4^b in a component and cost b for each of `rows`, and `side` once if b > 0. The
    total cost is at most `budget` bits. For a given number of coded components, the bits with the largest gains are
    best, since each bit of a component gains a quarter of the previous bit. All numbers of components are tried.
    """
    steps = 4.0 ** -torch.arange(MOST, dtype=torch.float64) * 0.75
    gains = variances.clamp(min=0)[:, None] * steps  # [components, bits]: the gain of each further bit
    best, bits = 0.0, torch.zeros(len(variances), dtype=torch.int64)
    for coded in range(1, len(variances) + 1):
        affordable = int((budget - coded * side) // rows)
        if affordable < coded:
            break
        candidates = gains[:coded].flatten()
        order = candidates.sort(descending=True, stable=True).indices[:affordable]
        order = order[candidates[order] > 0]
        gain = float(candidates[order].sum())
        if gain > best:
            best, bits = gain, torch.zeros(len(variances), dtype=torch.int64)
            bits[:coded] = torch.bincount(order // MOST, minlength=coded)
    return bits
