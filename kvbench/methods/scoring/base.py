"""Scoring: how much each prompt token matters. A new scorer is one class with `votes` (and its `needs`)."""

from abc import ABC, abstractmethod

from torch import Tensor

from kvbench.prefill import LayerState, Needs


class Scoring(ABC):
    """Importance of prompt tokens, from prefill observations."""

    needs: Needs = Needs()
    minimum_budget: int = 1

    @abstractmethod
    def protected(self, budget: int) -> int:
        """How many trailing tokens are kept whatever their score."""

    @abstractmethod
    def votes(self, layer: LayerState) -> Tensor:
        """Float32 [num_attention_heads, n], higher is more important."""

    def smooth(self, votes: Tensor) -> Tensor:
        """What happens to votes [heads, n - window] after a group's heads were reduced to one."""
        return votes
