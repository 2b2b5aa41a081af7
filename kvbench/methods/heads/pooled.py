"""Pooled heads: the whole model's budget goes to the best scores of all heads of all layers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from kvbench.methods.heads.base import HeadBudgets
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked(frozen=True)
class PooledHeads(HeadBudgets):
    """A head keeps as many tokens as it has among the best of all heads of all layers: KVzip's level `pair` (Kim et al.
    2025, arXiv 2505.23416).

    threshold   exact: the budget to the token. Equal scores go to the smaller rank inside the head, then to the lower
                layer, then to the lower head.
                official: the released code. A ratio ρ counts only scored tokens; tokens that are always kept are added.
                Scores above the int(Nρ)-th largest of all N scores stay: at most int(Nρ) - 1 tokens, because scores
                equal to that threshold are dropped.
    """

    threshold: Literal["exact", "official"] = "exact"

    whole_model = pools_layers = True

    @property
    def overspends(self) -> str:
        return "what always stays comes on top of the ratio" if self.threshold == "official" else ""

    @cached_property
    def takes_fractions(self) -> bool:
        return self.threshold == "official"

    @property
    def fills_budget(self) -> bool:
        return self.threshold == "exact"  # the official one drops equal scores

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        return self.pooled([ranked], tokens, window, layer.n)[0]

    def pooled(self, ranked: Sequence[Tensor], budget: float, window: int, n: int) -> Tensor:
        """How many tokens before the window each head of each layer keeps, int64 [layers, heads].

        ranked has the scores [heads, n - window] of each layer, each row in descending order; tokens with infinite
        scores always stay. The result is on the first layer's device.
        """
        scores = torch.stack([rows.to(ranked[0].device, non_blocking=True) for rows in ranked])
        sure = scores.isposinf().sum(dim=-1)
        heads = sure.numel()
        values, order = scores.permute(2, 0, 1).flatten().sort(descending=True, stable=True)
        if self.threshold == "official":
            scored = len(values) - sure.sum()
            place = (scored.double() * (budget / n) + 1e-9).long() - 1  # 1e-9: float noise
            cut = values.gather(0, (sure.sum() + place.clamp(min=0)).clamp(max=len(values) - 1)[None])
            return torch.maximum((scores > cut).sum(dim=-1), sure)
        first = order[: heads * (int(budget) - window)] % heads
        counts = sure.new_zeros(heads).scatter_add_(0, first, torch.ones_like(first))
        return torch.maximum(counts.view_as(sure), sure)
