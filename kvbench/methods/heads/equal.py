"""Equally many tokens in every head of a layer."""

from torch import Tensor

from kvbench.methods.heads.base import HeadBudgets
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked(frozen=True)
class EqualHeads(HeadBudgets):
    """Equally many tokens in every head of a layer."""

    @property
    def fills_budget(self) -> bool:
        return True

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> int:
        return tokens - window
