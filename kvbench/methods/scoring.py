"""Scoring: how much each prompt token matters. A new scorer is one class with `votes` (and its `needs`)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.base import at_least, choice
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


@dataclass
class WindowAttention(Scoring):
    """SnapKV (Li et al. 2024, §4): attention of the last w queries, summed, then pooled along positions.

    Pooling covers the context only, never the window. `max` pads with -inf; `avg` pads with zeros that
    count, as in the official code, so the first token's score is divided by the whole kernel.
    Groups of heads are reduced before pooling (KVCache-Factory's order; the same as kvpress's for `avg`).
    """

    window: int = 32
    kernel: int = 7
    pooling: str = "max"

    def __post_init__(self):
        at_least("window", self.window, 1)
        at_least("kernel", self.kernel, 1)
        if self.kernel % 2 == 0:
            raise UserError(f"kernel={self.kernel} is even: a pooling kernel must be odd to stay aligned")
        choice("pooling", self.pooling, ("max", "avg"))
        self.needs = Needs(window=self.window)
        self.minimum_budget = self.window + 1

    def protected(self, budget: int) -> int:
        return self.window

    def votes(self, layer: LayerState) -> Tensor:
        return layer.window_votes(self.window)

    def smooth(self, votes: Tensor) -> Tensor:
        pool = F.max_pool1d if self.pooling == "max" else F.avg_pool1d
        return pool(votes[None], self.kernel, stride=1, padding=self.kernel // 2)[0]


@dataclass
class ColumnSums(Scoring):
    """H2O (Zhang et al. 2023): attention of all queries so far, summed per key in float32.

    score="sum"   as the code has it; early tokens are seen by more queries and gain by it.
    score="mean"  divided by the n - j queries that can see key j.
    recent        tokens kept at the end; null is half the budget, the paper's equal split. PyramidKV's
                  tables were made with 8.
    """

    recent: int | None = None
    score: str = "sum"

    def __post_init__(self):
        choice("score", self.score, ("sum", "mean"))
        if self.recent is not None:
            at_least("recent", self.recent, 0)
        self.needs = Needs(column_sums=True)
        self.minimum_budget = 2 if self.recent is None else self.recent + 1

    def protected(self, budget: int) -> int:
        return budget // 2 if self.recent is None else self.recent

    def votes(self, layer: LayerState) -> Tensor:
        if self.score == "sum":
            return layer.column_sums
        return layer.column_sums / torch.arange(layer.n, 0, -1, device=layer.keys.device)
