"""H2O's score: attention of all queries."""

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.facts import values
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative, checked


@checked
class ColumnSums(Scoring):
    """H2O (Zhang et al. 2023): attention of all queries so far, summed per key in float32.

    score="sum"   as in the released code; it favours early tokens, which more queries see.
    score="mean"  divided by the n - j queries that can see key j.
    recent        last tokens that are always kept; null: half of the budget, the paper's equal split. PyramidKV's
                  LongBench script has 8 since 2024-07-10 and had 32 before.
    causal=false  only the last `recent` queries are masked; all other queries attend to later keys, too, as in the code
                  of KVCache-Factory between 2024-10-13 (98e8228) and 2026-06-22 (9f9aa2e).
    """

    short = values(recent=8)

    recent: NonNegative | None = None
    score: Literal["sum", "mean"] = "sum"
    causal: bool = True

    def __post_init__(self) -> None:
        if not self.causal and (not self.recent or self.score != "sum"):
            raise UserError(
                "causal=false masks only the last `recent` queries and sums: it needs a number of recent tokens and "
                f"score=sum, not recent={self.recent} and score={self.score}"
            )

    @cached_property
    def needs(self) -> Needs:
        if self.causal:
            return Needs(column_sums=True)
        return Needs(lookahead_sums=frozenset([self._masked]))

    @property
    def _masked(self) -> int:
        """How many queries are masked if causal=false."""
        return self.recent or 0

    @property
    def while_decoding(self) -> bool:
        return self.causal and self.score == "sum"  # a mean needs the place of a key in the prompt, to count queries

    @property
    def minimum_budget(self) -> int:
        """2 if half of the budget is recent: a heavy hitter and a recent token."""
        return 2 if self.recent is None else super().minimum_budget

    def protected(self, budget: int) -> int:
        return budget // 2 if self.recent is None else self.recent

    def queries(self, layer: LayerState) -> int:
        return layer.n if self.score == "sum" else 1

    def votes(self, layer: LayerState) -> Tensor:
        if not self.causal:
            return layer.lookahead_sums[self._masked]
        if self.score == "sum":
            return layer.column_sums
        return layer.column_sums / torch.arange(layer.n, 0, -1, device=layer.keys.device)
