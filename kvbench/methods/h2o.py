"""H2O: heavy hitters and recent tokens, once after prefill or all through decoding."""

from dataclasses import dataclass, field

import torch

from kvbench.cache.base import LayerCache
from kvbench.cache.heavy_hitter import HeavyHitterLayer
from kvbench.errors import UserError
from kvbench.methods.base import choice
from kvbench.methods.eviction import Eviction
from kvbench.methods.scoring import ColumnSums
from kvbench.methods.selection import gather
from kvbench.methods.storage import Dense
from kvbench.prefill import LayerState
from kvbench.ratio import Kept


@dataclass
class H2O(Eviction):
    """H2O (Zhang et al. 2023): keep the tokens with the most accumulated attention, and the last ones.

    decode="grow"    evict once after prefill and let the cache grow (KVCache-Factory; PyramidKV's tables).
    decode="update"  the official form: scores go on accumulating, the cache stays at the budget.

    A class beside `Eviction` because `update` scores and evicts while decoding, in a store of its own.
    """

    scoring: ColumnSums = field(default_factory=ColumnSums)
    decode: str = "grow"

    def __post_init__(self):
        super().__post_init__()
        choice("decode", self.decode, ("grow", "update"))
        if self.decode == "grow":
            return
        if self.storage != Dense():
            raise UserError("decode=update evicts single tokens from its own store: it needs dense, unfolded storage")
        if not isinstance(self.scoring, ColumnSums) or self.scoring.score != "sum":
            what = getattr(self.scoring, "score", type(self.scoring).__name__)
            raise UserError(
                "decode=update adds each new token's attention to the sums of the prompt: it needs scoring "
                f"ColumnSums with score=sum, not {what}"
            )

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.decode == "grow":
            return super().compress_layer(layer, index, num_layers, budget)
        selection = self.select(layer, index, num_layers, budget)
        scores = self.per_head(self.scoring.votes(layer), layer)
        indices = selection.indices
        limit = budget if indices is None else selection.nominal  # of this layer; a pyramid's differ
        if indices is None:
            indices = torch.arange(layer.n, device=scores.device).expand(len(scores), layer.n)
        return HeavyHitterLayer(
            gather(layer.keys, indices),
            gather(layer.values, indices),
            scores.gather(1, indices),
            indices,
            layer.n,
            Kept.tokens(selection.nominal, indices.shape[1], layer.n, len(indices), where=selection.where(layer)),
            limit,
            self.scoring.protected(budget),
        )
