"""H2O's own cache: scores go on accumulating, and every new token drives one out."""

import torch
from torch import Tensor

from kvbench.attention import dense_attention
from kvbench.cache.base import Growing, LayerCache
from kvbench.ratio import Kept


class HeavyHitterLayer(LayerCache):
    """At most `budget` tokens per head: the `recent` last ones and those with the most attention so far.

    A step attends over the cache and the new token, adds that attention to the scores, then drops the
    lowest scored token that is not recent; the next token takes its slot.
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
        super().__init__(seen, kept)
        # all four are written in place
        self.k, self.v = Growing(keys[None].clone()), Growing(values[None].clone())
        self.scores = Growing(scores[..., None].float().clone())
        self.positions = Growing(positions[..., None].to(torch.int32))
        self.budget, self.recent = budget, recent
        self.free: Tensor | None = None  # [heads] slots whose tokens were dropped

    def tensors(self) -> list[Tensor]:
        stored = [self.k.buffer, self.v.buffer, self.scores.buffer, self.positions.buffer]
        return stored if self.free is None else [*stored, self.free]

    def append(self, keys: Tensor, values: Tensor) -> None:
        heads = self.k.buffer.shape[1]
        group = heads // keys.shape[1]  # unfolded: every query head gets its own copy
        keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
        scores = self.scores.buffer.new_zeros(heads, 1, 1)
        positions = torch.full_like(scores, self.seen, dtype=torch.int32)
        new = [(self.k, keys), (self.v, values), (self.scores, scores), (self.positions, positions)]
        for store, row in new:
            if self.free is None:
                store.append(row)
            else:
                store.view.scatter_(-2, self._slots(row), row)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        keys = self.k.view
        grouped = query[0].float().unflatten(0, (keys.shape[1], -1)).squeeze(2)  # [heads, group, head_dim]
        logits = grouped @ keys[0].float().mT * scaling
        self.scores.view.add_(logits.softmax(dim=-1).mean(dim=1)[..., None])
        out = dense_attention(query, keys, self.v.view, scaling)
        if keys.shape[2] > self.budget:
            self.free = self._weakest()
        return out

    def _weakest(self) -> Tensor:
        """Slot per head of the lowest score among tokens older than the recent ones; ties: the latest goes."""
        scores, positions = self.scores.view[..., 0], self.positions.view[..., 0]  # [heads, len]
        candidates = scores.masked_fill(positions > self.seen - 1 - self.recent, float("inf"))
        lowest = candidates == candidates.amin(dim=1, keepdim=True)
        return positions.masked_fill(~lowest, -1).argmax(dim=1)

    def _slots(self, row: Tensor) -> Tensor:
        """`free` as an index for scatter into a store of `row`'s shape [..., heads, 1, width]."""
        return self.free[:, None, None].expand(row.shape[-3:]).reshape(row.shape)
