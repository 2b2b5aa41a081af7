"""Budgets of heads: how many tokens each head of a layer keeps."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from kvbench.methods.facts import Stated
from kvbench.prefill import LayerState


class HeadBudgets(Stated, ABC):
    """Shares a layer's tokens between the heads that select. New budgets are one class with `counts`.

    `whole_model` budgets share the tokens of all layers: they go with an allocation that gives every layer the same.
    Those that say `pools_layers` do so from the scores of all layers: see `PooledHeads`.
    Those that say `takes_fractions` are given a ratio as ratio·n, not rounded down to whole tokens.
    """

    whole_model: ClassVar[bool] = False
    pools_layers: ClassVar[bool] = False

    @cached_property
    def takes_fractions(self) -> bool:
        return False

    def for_prompt(self, budget: float, least: int) -> "HeadBudgets":
        """These budgets where all layers have `budget` per head in the mean, for those that depend on it.

        `least` tokens before the window stay in every head: see `Scoring.least`.
        """
        return self

    @abstractmethod
    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> int | Tensor:
        """How many tokens before the window each head keeps: one number for all, or int64 [heads] on the device.

        ranked [heads, n - window] are the scores of each head, the largest first. The layer has `tokens` per head, its
        window of `window` tokens included. No wait for the device.
        """

    def pooled(self, ranked: Sequence[Tensor], budget: float, window: int, n: int) -> Tensor:
        """What `counts` returns for all layers at once, int64 [layers, heads], of those that say `pools_layers`."""
        raise TypeError(f"{type(self).__name__} does not pool layers")

    def sure(self, tokens: int, window: int) -> int:
        """How many of its best tokens before the window each head keeps whatever the other heads' scores."""
        return 0

    def nominal(self, heads: int, tokens: int, window: int, layer: LayerState) -> int:
        """The mean number of tokens that the layer's heads are given, the window included."""
        return tokens

    def longest(self, heads: int, tokens: int, window: int, layer: LayerState) -> int:
        """No head keeps more tokens, its window included."""
        return layer.n
