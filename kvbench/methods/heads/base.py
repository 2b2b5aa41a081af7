"""Budgets of heads: how many tokens each head of a layer keeps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from kvbench.methods.facts import Stated
from kvbench.prefill import LayerState


class LayerBudget(NamedTuple):
    """What one layer may keep, in tokens per head."""

    tokens: int  # in the mean over its heads, the window included
    window: int  # its last tokens, which always stay
    least: int  # tokens before the window that stay in every head: see `Scoring.least`
    model: float  # the mean over all layers: the setting's budget


class HeadCounts(NamedTuple):
    """What the heads of one layer keep."""

    counts: int | Tensor  # tokens before the window: one number for all heads, or int64 [heads] on the device
    nominal: int  # the mean over heads of the tokens that they are given, the window included
    longest: int  # no head keeps more, its window included
    sure: int = 0  # the best tokens before the window that each head keeps, whatever the other heads' scores

    @classmethod
    def known(cls, row: Sequence[int], window: int, device: torch.device) -> "HeadCounts":
        """Of heads whose tokens before the window are known on the host."""
        counts = torch.tensor(row, device=device)
        return cls(counts, window + math.ceil(sum(row) / len(row)), window + max(row))


class HeadBudgets(Stated, ABC):
    """Shares a layer's tokens between the heads that select. New budgets are one class with `counts`.

    `whole_model` budgets share the tokens of all layers: they go with an allocation that gives every layer the same.
    Those that say `pools_layers` do so from the scores of all layers: see `PooledHeads`.
    Those that say `takes_fractions` are given a ratio as ratio·n, not rounded down to whole tokens.
    Those that read more than a layer's tokens and window, or know before the scores how long a head can be, also
    override `share`.
    """

    whole_model: ClassVar[bool] = False
    pools_layers: ClassVar[bool] = False

    @cached_property
    def takes_fractions(self) -> bool:
        return False

    @abstractmethod
    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> int | Tensor:
        """How many tokens before the window each head keeps: one number for all, or int64 [heads] on the device.

        ranked [heads, n - window] are the scores of each head, the largest first. The layer has `tokens` per head, its
        window of `window` tokens included. No wait for the device.
        """

    def share(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        """`counts`, with what is known of them beforehand."""
        counts = self.counts(ranked, budget.tokens, budget.window, layer)
        return HeadCounts(counts, budget.tokens, layer.n)

    def pooled(self, ranked: Sequence[Tensor], budget: float, window: int, n: int) -> Tensor:
        """What `counts` returns for all layers at once, int64 [layers, heads], of those that say `pools_layers`."""
        raise TypeError(f"{type(self).__name__} does not pool layers")
