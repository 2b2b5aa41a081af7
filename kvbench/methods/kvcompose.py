"""KVCompose (Akulov et al. 2025, arXiv 2509.05165): scores of a second reading, and composite tokens."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from kvbench.methods.heads.base import HeadBudgets
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs, Reconstruction
from kvbench.utils.checked import NonNegative, checked

WHOLE = 2**40  # tokens: the context is read again in one piece


@checked
class KVCompose(Scoring):
    """The largest attention of any query of a second pass over the context (Akulov et al. 2025, arXiv 2509.05165).

    The context is read again after itself, in one piece and without a request. A token's score is its largest attention
    weight over these queries, averaged over the query heads of its group, plus the mean of this over the layer's heads.
    Tokens after the context always stay. Source: KVComposePress in kvpress, with its defaults.

    sinks   first tokens that always stay where a prompt has no chat template or BOS token before its context.
    """

    sinks: NonNegative = 0

    per_query_head = False

    def __post_init__(self) -> None:
        self._how = Reconstruction(WHOLE, 0, self.sinks, None, "mean")
        self.needs = Needs(reconstructions=frozenset([self._how]))

    def votes(self, layer: LayerState) -> Tensor:
        scores = layer.reconstruction[self._how].scores
        return scores + scores.mean(dim=0)

    def least(self, layer: LayerState) -> int:
        return layer.reconstruction[self._how].outside


@checked(frozen=True)
class CompositeHeads(HeadBudgets):
    """Equally many tokens in all heads of a layer, by composite tokens (KVCompose, Akulov et al. 2025, arXiv
    2509.05165).

    A layer's i-th composite token consists of the i-th best token of each head, which may be different tokens of the
    text; its score is the mean over heads. The lowest layer takes the best score of any layer at each place, so no
    layer keeps more than the lowest. The best composite tokens of the whole model stay. Source: KVComposePress in
    kvpress (structured).

    Equal scores go to the smaller place, then to the lower layer. A layer may have none of the best composite tokens:
    it keeps only what always stays, if anything does, as in the press up to kvpress 0.5.4. Since 0.5.5 the press keeps
    one token in such a layer, on top of the budget.
    """

    version: ClassVar[int] = 2  # 1 kept one token in such a layer, on top of the budget

    whole_model = pools_layers = True

    @property
    def fills_budget(self) -> bool:
        return True

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        return self.pooled([ranked], tokens, window, layer.n)[0]

    def pooled(self, ranked: Sequence[Tensor], budget: float, window: int, n: int) -> Tensor:
        """As `PooledHeads.pooled`: how many tokens before the window each head of each layer keeps, [layers, heads]."""
        scores = torch.stack([rows.to(ranked[0].device, non_blocking=True) for rows in ranked])
        sure = scores.isposinf().sum(dim=-1)
        composite = scores.mean(dim=1)  # [layers, n - window]
        composite[0] = composite.amax(dim=0)
        order = composite.T.flatten().argsort(descending=True, stable=True)
        first = order[: len(ranked) * (int(budget) - window)] % len(ranked)
        counts = first.new_zeros(len(ranked)).scatter_add_(0, first, torch.ones_like(first))
        return torch.maximum(counts[:, None].expand_as(sure), sure)
