"""H2O: heavy hitters and recent tokens, once after prefill or all through decoding."""

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.slots import SlotLayer
from kvbench.errors import UserError
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.h2o.scoring import ColumnSums
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import Selection
from kvbench.methods.storage.dense import Dense
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


class HeavyHitterLayer(SlotLayer):
    """At most `budget` tokens per head: the last `recent` tokens and those with the most attention so far.

    A step attends to the cache and the new token, adds that attention to the scores, then drops the token with the
    lowest score that is not recent.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        scores: Tensor,
        positions: Tensor,
        seen: int,
        kept: Kept,
        budget: int,
        recent: int,
    ):
        """keys, values [heads, len, head_dim], scores and positions [heads, len], len <= budget."""
        super().__init__(keys, values, positions, seen, kept, budget)
        self.scores, self.recent = Growing(scores[..., None].float().clone()), recent

    @property
    def stores(self) -> list[Growing]:
        return [*super().stores, self.scores]

    def float32_tensors(self) -> list[Tensor]:
        return [self.scores.buffer]

    def append(self, keys: Tensor, values: Tensor) -> None:
        super().append(keys, values)
        self.put(self.scores, 0.0)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        self.scores.view.add_(self.attention(query, scaling).mean(dim=1).mT)
        return super().attend(query, scaling)

    def ranks(self, query: Tensor, scaling: Scaling) -> Tensor:
        recent = self.positions.view[..., 0] > self.seen - 1 - self.recent
        return self.scores.view[..., 0].masked_fill(recent, float("inf"))


@checked
class H2O(Eviction):
    """H2O (Zhang et al. 2023, arXiv 2306.14048): the tokens with the most accumulated attention, and the last ones.

    decode="grow"    evict once after prefill and let the cache grow (KVCache-Factory; PyramidKV's tables).
    decode="update"  the official form: scores keep accumulating and the cache stays at the budget. A decoded query
                     adds the mean of its group's attention, so prompt scores must be group means as well.

    It is a subclass because `update` scores and evicts while decoding, in a layer cache written for it.
    """

    scoring: Scoring = field(default_factory=ColumnSums)
    decode: Literal["grow", "update"] = "grow"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode == "grow":
            return
        if self.decode_compression is not None:
            raise UserError("decode=update already evicts a token at every step: leave decode_compression out")
        if self.storage != Dense():
            raise UserError("decode=update evicts single tokens from a layer's store: it needs dense, unfolded storage")
        if self.heads != EqualHeads():
            raise UserError("decode=update evicts a token of every head at once: it needs heads EqualHeads")
        if self.granularity == "layer":
            raise UserError(
                "decode=update evicts by the sums of each head: it needs granularity=kv_head or query_head, not layer"
            )
        if self.group_reduce != "mean":
            raise UserError(
                "decode=update adds the mean of a group's attention to each new token: it needs group_reduce=mean, "
                f"not {self.group_reduce}"
            )
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
        limit = budget if selection.indices is None else selection.nominal  # this layer's budget; a pyramid's differ
        scores = self.per_head(self.scoring.votes_of(layer), layer)
        indices = selection.indices
        if indices is None:
            indices = torch.arange(layer.n, device=scores.device).expand(len(scores), layer.n)
            selection = Selection(indices, layer.n)
        return HeavyHitterLayer(
            selection.of(layer.keys),
            selection.of(layer.values),
            scores.gather(1, indices),
            indices,
            layer.n,
            selection.kept(layer),
            limit,
            self.scoring.window_of(budget),
        )
