"""AdaKV: a layer's budget goes to the heads with the highest scores."""

from typing import Literal

import torch
from torch import Tensor

from kvbench.methods.heads.base import HeadBudgets, HeadCounts, LayerBudget
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, checked


@checked(frozen=True)
class AdaKV(HeadBudgets):
    """AdaKV (Feng et al. 2024, arXiv 2407.11550): a head keeps as many tokens as it has among the layer's best.

    H heads select c = tokens - window tokens each on average. The H·c best scores are taken from all heads together;
    f_h of them belong to head h. Equal scores are ordered by their rank inside their head, then by head.

    alpha       the share of c that every head is guaranteed.
    safeguard   blend: head h selects (1 - alpha)·f_h + alpha·c (the paper and the released code). hard: its best tokens
                up to alpha times the budget, the window included and at least one, come before all others in the pool
                (kvpress).
    rounding    rounding of blend. exact: largest remainders, so that the heads select H·c tokens together. official:
                alpha·c is rounded down, then the sum to the nearest integer; the total may differ from H·c by a few.
    """

    alpha: Fraction = 0.2
    safeguard: Literal["blend", "hard"] = "blend"
    rounding: Literal["exact", "official"] = "exact"

    @property
    def overspends(self) -> str:
        return "the released code rounds the budget of each head" if self.rounding == "official" else ""

    @property
    def fills_budget(self) -> bool:
        return True

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        heads, c = len(ranked), tokens - window
        if self.safeguard == "hard":
            ranked = ranked.clone()
            ranked[:, : self._sure(tokens, window)] = float("inf")
            return pooled_counts(ranked, heads * c)
        pooled = pooled_counts(ranked, heads * c)
        if self.rounding == "official":
            return nearest_blend(pooled, self.alpha, int(self.alpha * c))
        return largest_remainder(pooled.double() * (1 - self.alpha) + self.alpha * c, heads * c)

    def share(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        tokens, window = budget.tokens, budget.window
        longest = min(layer.n, window + len(ranked) * (tokens - window))
        return HeadCounts(self.counts(ranked, tokens, window, layer), tokens, longest, self._sure(tokens, window))

    def _sure(self, tokens: int, window: int) -> int:
        """The number of best tokens of each head that come before all others in the pool."""
        if self.safeguard == "blend":
            return 0
        return max(int(self.alpha * tokens + 1e-9) - window, 1 - window if self.alpha else 0, 0)  # 1e-9: float noise


def pooled_counts(ranked: Tensor, total: int) -> Tensor:
    """How many of the `total` largest scores of ranked [heads, len] each row has, int64 [heads].

    Each row is sorted in descending order. Ties: the smaller rank inside the row, then the smaller row.
    """
    heads = len(ranked)
    order = ranked.mT.flatten().sort(descending=True, stable=True).indices[:total]
    return order.new_zeros(heads).scatter_add_(0, order % heads, torch.ones_like(order))


def nearest_blend(pooled: Tensor, alpha: float, floor: int) -> Tensor:
    """(1 - alpha)·pooled + floor, int64 [heads], rounded to the nearest integer and from halves to the even integer."""
    return (pooled.float() * (1 - alpha) + floor).round().long()


def largest_remainder(shares: Tensor, total: int) -> Tensor:
    """Non-negative shares [count] rounded to integers that sum to `total`, as `allocation.base.largest_remainder`."""
    floors = (shares + 1e-9).floor()
    by_remainder = (floors - shares).mul(1e9).round().sort(stable=True).indices
    place = torch.empty_like(by_remainder).scatter_(0, by_remainder, torch.arange(len(shares), device=shares.device))
    return (floors + (place < total - floors.sum())).long()
