"""LAVa's budgets of heads: AdaKV's blend, with the released code's floor beside the one that it means."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from kvbench.methods.heads.adakv import AdaKV, nearest_blend, pooled_counts
from kvbench.methods.heads.base import HeadBudgets
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, checked


@checked(frozen=True)
class LAVaHeads(HeadBudgets):
    """LAVa (Shen et al. 2025, arXiv 2509.09754): as many tokens as a head has among the layer's best, and a floor.

    alpha   as AdaKV's.
    floor   layer: alpha of what the layer's heads select in the mean. This is AdaKV with largest remainders.
            official: the released code, which sets the floor of a layer's own budget under two misspelt names, so that
            every layer has that of the model's: alpha·B, rounded down, the window included. With heads rounded to the
            nearest integer they keep (1 - alpha)·(B - w) + alpha·B + w in the mean, which exceeds B.
    """

    alpha: Fraction = 0.2
    floor: Literal["layer", "official"] = "layer"

    @property
    def overspends(self) -> str:
        return "the released floor of a head is a share of the whole budget" if self.floor == "official" else ""

    def for_prompt(self, budget: float, least: int) -> HeadBudgets:
        return AdaKV(self.alpha) if self.floor == "layer" else FixedFloor(self.alpha, int(self.alpha * budget))

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        raise TypeError("LAVaHeads has no counts without the budget of all layers: see for_prompt()")


@dataclass(frozen=True)
class FixedFloor(HeadBudgets):
    """AdaKV's blend, rounded to the nearest integer, with a floor of so many tokens whatever the layer has."""

    alpha: float
    floor: int

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        pooled = pooled_counts(ranked, len(ranked) * (tokens - window))
        return nearest_blend(pooled, self.alpha, self.floor)

    def nominal(self, heads: int, tokens: int, window: int, layer: LayerState) -> int:
        return min(layer.n, window + math.ceil((1 - self.alpha) * (tokens - window) + self.floor))

    def longest(self, heads: int, tokens: int, window: int, layer: LayerState) -> int:
        return min(layer.n, window + heads * (tokens - window) + self.floor)
