"""LAVa's budgets of heads: AdaKV's blend, with the intended floor or the floor of the released code."""

import math
from typing import Literal

from torch import Tensor

from kvbench.methods.adakv import AdaKV, nearest_blend, pooled_counts
from kvbench.methods.heads.base import HeadBudgets, HeadCounts, LayerBudget
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, checked


@checked(frozen=True)
class LAVaHeads(HeadBudgets):
    """LAVa (Shen et al. 2025, arXiv 2509.09754): as AdaKV, a head keeps its tokens among the layer's best, and a floor.

    alpha   as AdaKV's.
    floor   layer: alpha of the mean that the layer's heads select. This is AdaKV with largest remainders.
            official: the released code. It misspells two names, so every layer has the floor of the model's budget B:
            alpha·B, rounded down, the window included. Heads, rounded to the nearest integer, then keep a mean of
            (1 - alpha)·(B - w) + alpha·B + w tokens, which exceeds B.
    """

    alpha: Fraction = 0.2
    floor: Literal["layer", "official"] = "layer"

    @property
    def overspends(self) -> str:
        return "the released floor of a head is a share of the whole budget" if self.floor == "official" else ""

    @property
    def fills_budget(self) -> bool:
        return True

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        if self.floor == "layer":
            return AdaKV(self.alpha).counts(ranked, tokens, window, layer)
        return self._above(int(self.alpha * tokens), ranked, tokens - window)

    def share(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        if self.floor == "layer":
            return AdaKV(self.alpha).share(ranked, budget, layer)
        floor, window, c = int(self.alpha * budget.model), budget.window, budget.tokens - budget.window
        nominal = window + math.ceil((1 - self.alpha) * c + floor)
        longest = window + len(ranked) * c + floor
        return HeadCounts(self._above(floor, ranked, c), min(layer.n, nominal), min(layer.n, longest))

    def _above(self, floor: int, ranked: Tensor, c: int) -> Tensor:
        """AdaKV's blend, rounded to the nearest integer, with this floor whatever the layer's budget."""
        return nearest_blend(pooled_counts(ranked, len(ranked) * c), self.alpha, floor)
