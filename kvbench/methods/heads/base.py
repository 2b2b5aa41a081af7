"""Budgets of heads: how many tokens each head of a layer keeps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.facts import Stated
from kvbench.prefill import LayerState


class LayerBudget(NamedTuple):
    """The budget of one layer, in tokens per head."""

    tokens: int  # mean over the layer's heads, the window included
    window: int  # last tokens of the prompt, which always stay
    least: int  # tokens before the window that stay in every head: see `Scoring.least`
    model: float  # mean over all layers: the setting's budget


class HeadCounts(NamedTuple):
    """How many tokens the heads of one layer keep."""

    counts: int | Tensor  # tokens before the window: one number for all heads, or int64 [heads] on the device
    nominal: int  # budget of a head, the mean over heads, window included
    longest: int  # upper bound of the tokens of a head, window included
    sure: int = 0  # number of best tokens before the window that each head keeps, whatever the other heads' scores

    @classmethod
    def known(cls, row: Sequence[int], window: int, device: torch.device) -> "HeadCounts":
        """The counts of heads whose tokens before the window are known on the host."""
        counts = torch.tensor(row, device=device)
        return cls(counts, window + math.ceil(sum(row) / len(row)), window + max(row))


class HeadBudgets(Stated, ABC):
    """Shares a layer's tokens between the heads that select. New head budgets are one class with `counts`.

    whole_model       shares the tokens of all layers: it needs an allocation that gives all layers the same number.
    pools_layers      shares them by the scores of all layers: see `PooledHeads`.
    takes_fractions   gets a ratio as ratio·n, not rounded down to whole tokens.

    A class also overrides `share` if it reads more than a layer's tokens and window, or if it knows bounds of the
    counts without reading the scores.
    """

    whole_model: ClassVar[bool] = False
    pools_layers: ClassVar[bool] = False

    @property
    def fills_budget(self) -> bool:
        """Whether the heads keep all of the layer's tokens on average, to the nearest one."""
        return False

    @cached_property
    def takes_fractions(self) -> bool:
        return False

    @abstractmethod
    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> int | Tensor:
        """How many tokens before the window each head keeps: one number for all, or int64 [heads] on the device.

        ranked [heads, n - window]: the scores of each head, the largest first. The layer has `tokens` per head, its
        window of `window` tokens included. It must not wait for the device.
        """

    def share(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        """`counts`, with the bounds that are known without waiting for the device."""
        counts = self.counts(ranked, budget.tokens, budget.window, layer)
        return HeadCounts(counts, budget.tokens, layer.n)

    def shared(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        """`share`. Raises UserError for counts that are not whole numbers of heads, without a wait for the device."""
        made = self.share(ranked, budget, layer)
        counts: object = made.counts
        if isinstance(counts, int):
            return made
        of_heads = isinstance(counts, Tensor) and counts.dtype == torch.int64 and counts.shape == ranked.shape[:1]
        if of_heads:
            return made
        returned = f"{counts.dtype} {[*counts.shape]}" if isinstance(counts, Tensor) else repr(counts)
        raise UserError(
            f"{type(self).__name__}.counts returned {returned}: it must be one number for all heads, or int64 "
            f"[{len(ranked)}], a number for each head"
        )

    def pooled(self, ranked: Sequence[Tensor], budget: float, window: int, n: int) -> Tensor:
        """`counts` for all layers at once, int64 [layers, heads], if the class has `pools_layers`."""
        raise TypeError(f"{type(self).__name__} does not pool layers")
