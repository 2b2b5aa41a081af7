"""TOVA (Oren et al. 2024, arXiv 2401.06104): the tokens that the current query attends to."""

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.eviction import Eviction
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.last_query import LastQuery
from kvbench.methods.storage.base import alike
from kvbench.methods.storage.dense import Dense
from kvbench.ops import softmax
from kvbench.ops.attention import dense_attention, grouped_logits
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class TOVA(Eviction):
    """Keep the tokens with the most attention of the last query, averaged over all heads: one set for a layer.

    decode   grow: evict once, after prefill, and let the cache grow.
             evict: the released code. Each new token is added, every stored token is ranked by the attention of the
             current query, and the lowest one is dropped, the new one included.
    """

    scoring: Scoring = field(default_factory=LastQuery)
    granularity: Literal["kv_head", "query_head", "layer"] = "layer"
    decode: Literal["grow", "evict"] = "grow"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode == "evict" and self.decode_compression is not None:
            raise UserError("decode=evict already drops a token at every step: leave decode_compression out")
        if self.decode == "evict" and (self.storage != Dense() or self.granularity != "layer"):
            raise UserError(
                "decode=evict drops one token of all heads from its own store: it needs dense, unfolded storage and "
                f"granularity=layer, not {type(self.storage).__name__} and {self.granularity}"
            )

    @property
    def batches(self) -> bool:
        return super().batches and self.decode == "grow"

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.decode == "grow":
            return super().compress_layer(layer, index, num_layers, budget)
        selection = alike(self.select(layer, index, num_layers, budget))
        positions = torch.arange(layer.n, device=layer.keys.device)
        if selection.indices is not None:
            positions = selection.indices[0]
        limit = budget if selection.indices is None else selection.nominal  # of this layer; a pyramid's differ
        kept = selection.kept(layer)
        return CurrentQueryLayer(selection.of(layer.keys), selection.of(layer.values), positions, layer.n, kept, limit)


class CurrentQueryLayer(LayerCache):
    """At most `budget` tokens, alike in all heads: after each step the token with the least attention is dropped.

    The next token takes the slot of the one that was dropped.
    """

    def __init__(self, keys: Tensor, values: Tensor, positions: Tensor, seen: int, kept: Kept, budget: int) -> None:
        """keys, values [num_key_value_heads, len, head_dim], positions [len], len <= budget."""
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None].clone()), Growing(values[None].clone())  # written in place
        self.positions = Growing(positions[:, None].to(torch.int32))
        self.budget = budget
        self.free: Tensor | None = None  # [1] the slot whose token was dropped

    def tensors(self) -> list[Tensor]:
        stored = [self.k.buffer, self.v.buffer, self.positions.buffer]
        return stored if self.free is None else [*stored, self.free]

    @property
    def filled_bytes(self) -> int:
        return filled(self.k, self.v, self.positions, self.free)

    def append(self, keys: Tensor, values: Tensor) -> None:
        position = torch.full((1, 1), self.seen, dtype=torch.int32, device=keys.device)
        for store, row in ((self.k, keys), (self.v, values), (self.positions, position)):
            if self.free is None:
                store.append(row)
            else:
                store.view.index_copy_(-2, self.free, row)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        keys = self.k.view
        out = dense_attention(query, keys, self.v.view, scaling)
        if keys.shape[2] > self.budget:
            self.free = self._weakest(query, keys, scaling)
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return dense_attention(query, self.k.view, self.v.view, scaling)

    def _weakest(self, query: Tensor, keys: Tensor, scaling: Scaling) -> Tensor:
        """The slot [1] with the least attention of query [1, num_attention_heads, 1, head_dim]; ties: the latest."""
        logits = grouped_logits(query[0].unflatten(0, (keys.shape[1], -1)), keys[0], scaling)  # [heads, group, 1, len]
        scores = softmax.weights(logits, scaling).mean(dim=(0, 1, 2))
        return self.positions.view[:, 0].masked_fill(scores > scores.amin(), -1).argmax(dim=0, keepdim=True)
