"""H2O's score: attention of all queries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs
from kvbench.utils.validation import at_least, choice


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
