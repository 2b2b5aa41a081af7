"""H2O's score: attention of all queries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.errors import UserError
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
    causal=false  only the last `recent` queries are masked; all others attend to later keys too. This is what the
                  code of KVCache-Factory does between 2024-10-13 (98e8228) and 2026-06-22 (9f9aa2e).
    """

    recent: int | None = None
    score: str = "sum"
    causal: bool = True

    def __post_init__(self):
        choice("score", self.score, ("sum", "mean"))
        if self.recent is not None:
            at_least("recent", self.recent, 0)
        if not self.causal and (not self.recent or self.score != "sum"):
            raise UserError(
                "causal=false masks the last `recent` queries alone and sums: it needs a number of recent tokens and "
                f"score=sum, not recent={self.recent} and score={self.score}"
            )
        self.needs = Needs(column_sums=True) if self.causal else Needs(lookahead_sums=frozenset([self.recent]))
        self.minimum_budget = 2 if self.recent is None else self.recent + 1

    def protected(self, budget: int) -> int:
        return budget // 2 if self.recent is None else self.recent

    def votes(self, layer: LayerState) -> Tensor:
        if not self.causal:
            return layer.lookahead_sums[self.recent]
        if self.score == "sum":
            return layer.column_sums
        return layer.column_sums / torch.arange(layer.n, 0, -1, device=layer.keys.device)
