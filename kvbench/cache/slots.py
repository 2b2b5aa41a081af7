"""A cache of fixed size: after each step one token is dropped, and the next takes its slot."""

from abc import abstractmethod

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled, unfolded
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops import softmax
from kvbench.ops.attention import dense_attention, grouped_logits
from kvbench.ops.softmax import Scaling


class SlotLayer(LayerCache):
    """At most `budget` tokens per head: a step that exceeds the budget drops the token with the lowest rank.

    Each head drops a different token, or all heads drop the same: `positions` has a row for each choice.
    """

    def __init__(self, keys: Tensor, values: Tensor, positions: Tensor, seen: int, kept: Kept, budget: int):
        """keys, values [heads, len, head_dim], positions [heads or 1, len], len <= budget."""
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None].clone()), Growing(values[None].clone())  # written in place
        self.positions = Growing(positions[..., None].to(torch.int32))
        self.budget = budget
        self.free: Tensor | None = None  # [heads or 1, 1, 1] slots whose tokens were dropped

    @abstractmethod
    def ranks(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The rank of each stored token, [heads or 1, len], for query [1, num_attention_heads, 1, head_dim].

        Ties: the latest of the tokens with the lowest rank is dropped.
        """

    @property
    def stores(self) -> list[Growing]:
        """The tensors with a row for each token."""
        return [self.k, self.v, self.positions]

    def tensors(self) -> list[Tensor]:
        return [store.buffer for store in self.stores] + ([] if self.free is None else [self.free])

    @property
    def filled_bytes(self) -> int:
        return filled(*self.stores, self.free)

    def append(self, keys: Tensor, values: Tensor) -> None:
        for store, new in ((self.k, keys), (self.v, values)):
            self.put(store, unfolded(new, store.buffer.shape[1]))
        self.put(self.positions, self.seen)

    def put(self, store: Growing, new: Tensor | float) -> None:
        """Write a new token's part of a store, or one number for all heads, to the free slots, or append it."""
        if self.free is None:
            store.append(new if isinstance(new, Tensor) else torch.full_like(store.buffer[..., :1, :], new))
            return
        store.view.scatter_(-2, self.free.expand_as(new) if isinstance(new, Tensor) else self.free, new)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = dense_attention(query, self.k.view, self.v.view, scaling)
        if self.k.length > self.budget:
            ranks = self.ranks(query, scaling)
            higher = ranks > ranks.amin(dim=1, keepdim=True)
            latest = self.positions.view[..., 0].masked_fill(higher, -1).argmax(dim=1)
            self.free = latest[:, None, None]
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return dense_attention(query, self.k.view, self.v.view, scaling)

    def attention(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The attention of each query head to each token, float32 [heads, group, 1, len]."""
        keys = self.k.view
        logits = grouped_logits(query[0].unflatten(0, (keys.shape[1], -1)), keys[0], scaling)
        return softmax.weights(logits, scaling)
