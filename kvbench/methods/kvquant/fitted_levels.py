"""Levels fitted to numbers: k-means in one dimension."""

import torch
from torch import Tensor

BINS = 4096  # bins of the histogram of numbers between -1 and 1
ROUNDS = 50


def fitted_levels(numbers: Tensor, mask: Tensor, count: int) -> Tensor:
    """`count` levels, float32 [count], ascending, for the numbers between -1 and 1 where `mask` (bool) is true.

    Lloyd's iteration over a histogram, from levels that divide the numbers into equal shares. A level without a nearest
    number does not move. The result is the same on every device; there is no wait.
    """
    place = ((numbers.float().nan_to_num() + 1) * (BINS / 2)).clamp_(0, BINS - 1).long()
    inside = mask & (numbers.abs() <= 1)
    counts = torch.zeros(BINS, dtype=torch.int64, device=numbers.device)
    counts.scatter_add_(0, place.flatten(), inside.flatten().long())
    centres = (torch.arange(BINS, dtype=torch.float64, device=numbers.device) + 0.5) * (2 / BINS) - 1
    below = _running(counts.double())
    weight = _running(counts * centres)
    shares = (torch.arange(count, dtype=torch.float64, device=numbers.device) + 0.5) / count
    levels = centres[torch.searchsorted(below[1:], shares * below[-1]).clamp_(max=BINS - 1)]
    spread = torch.linspace(-1, 1, count, dtype=torch.float64, device=numbers.device)
    levels = torch.where(below[-1] > 0, levels, spread)
    for _ in range(ROUNDS):
        edges = torch.searchsorted(centres, (levels[1:] + levels[:-1]) / 2)
        ends = torch.cat([edges.new_zeros(1), edges, edges.new_full((1,), BINS)])
        held = below[ends].diff()
        levels = torch.where(held > 0, weight[ends].diff() / held.clamp(min=1), levels)
    return levels.float()


def _running(x: Tensor) -> Tensor:
    """The sums of the first 0, 1, … numbers of x."""
    return torch.cat([x.new_zeros(1), x.cumsum(0)])
