"""LAVa's allocation: more tokens for layers whose scores are spread over heads and tokens."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.allocation.base import largest_remainder
from kvbench.methods.allocation.weighted import WeightedAllocation, shares
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked(frozen=True)
class ScoreEntropy(WeightedAllocation):
    """LAVa (Shen et al. 2025, arXiv 2509.09754): layers share the budget by the entropy of their scores.

    The scores of all heads and of all tokens before the window form one distribution. The weight is its entropy over
    the largest possible entropy, the logarithm of the number of scores. Tokens that always stay are excluded.

    alloc    exact: tokens that a layer cannot hold go to the others, in proportion to their weights, until no share
             exceeds the prompt; the shares sum to the budget.
             official: the released code. Shares are rounded down, and the excess over the prompt is lost (where the
             released code fails).
    """

    alloc: Literal["exact", "official"] = "exact"

    def check(self, scoring: Scoring) -> None:
        if scoring.signed:
            raise UserError(
                f"ScoreEntropy reads scores as a distribution, but those of {type(scoring).__name__} may be negative: "
                "it needs another scoring, for example LAVa or WindowAttention"
            )

    def weight(self, layer: LayerState, scores: Callable[[], Tensor]) -> Tensor:
        values = scores().double()
        values = values.masked_fill(values.isinf(), 0.0)
        spread = values / values.sum().clamp_min(torch.finfo(torch.float64).tiny)
        return torch.special.entr(spread).sum() / math.log(max(values.numel(), 2))  # one score has no entropy

    def divide(self, weights: Sequence[float], budget: int, n: int, window: int) -> list[int]:
        if self.alloc == "exact":
            total = len(weights) * (budget - window)
            filled = proportional(weights, total, n - window)
            return [share + window for share in largest_remainder(filled, total)]
        return self.bounds(weights, budget, n, window, len(weights))

    def bounds(self, weights: Sequence[float], budget: int, n: int, window: int, num_layers: int) -> list[int]:
        # a layer's share of `total` falls with every further layer
        total, most = num_layers * (budget - window), n - window
        if self.alloc == "exact":
            return [min(int(share) + 1, most) + window for share in proportional(weights, total, most)]
        return [min(int(share), most) + window for share in shares(weights, total)]


def proportional(weights: Sequence[float], total: int, most: int) -> list[float]:
    """`total` divided in proportion to the weights, no part above `most`; all parts are `most` if `total` is larger."""
    free, parts = list(range(len(weights))), [float(most)] * len(weights)
    while free:
        divided = dict(
            zip(free, shares([weights[i] for i in free], total - most * (len(parts) - len(free))), strict=True)
        )
        full = [i for i in free if divided[i] >= most]
        if not full:
            for i in free:
                parts[i] = divided[i]
            break
        free = [i for i in free if i not in full]
    return parts
