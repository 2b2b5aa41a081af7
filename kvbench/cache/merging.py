"""Pooling-merge's cache: the oldest entries are pooled in groups, again and again, and the length stays bounded."""

import torch
from torch import Tensor

from kvbench.attention import dense_attention
from kvbench.cache.base import Growing, LayerCache
from kvbench.ratio import Kept


class Shrinking(Growing):
    """A growing tensor whose rows can give way to fewer."""

    def splice(self, start: int, end: int, rows: Tensor) -> None:
        """Put `rows` [..., k, width] in the place of rows start … end-1, k <= end - start."""
        before, after = self.view[..., :start, :], self.view[..., end:, :]
        length = start + rows.shape[-2] + after.shape[-2]
        if self.length == self.buffer.shape[-2]:
            # no slack: the buffer may be the prompt's own, which is shared; and this leaves no slack either
            self.buffer = torch.cat([before, rows, after], dim=-2)
        else:
            self.buffer[..., start:length, :] = torch.cat([rows, after], dim=-2)
        self.length = length


class MergingLayer(LayerCache):
    """At most `limit` entries: sinks, pooled entries, and the `recent` last tokens.

    While there are more, the oldest `group` entries that are neither sinks nor recent become one. Merging
    sweeps from old to new over these entries and begins anew at the oldest where fewer than `group` are left,
    so everything was merged once before anything is merged again. `recent` must leave room for it:
    sinks + recent + group - 1 <= limit.

    pooling  mean (of K and of V; by `counts` where given), max (element-wise), max_norm (the entry with the
             longest key) or best (the entry of the highest importance; ties: the later one).
    Post-RoPE keys are pooled as they are, and new tokens keep their true positions.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        pooling: str,
        group: int,
        limit: int,
        sinks: int,
        recent: int,
        importance: Tensor | None = None,
        weighted: bool = False,
    ):
        """keys, values [num_key_value_heads, n, head_dim]; importance [num_key_value_heads, n] float32 for best."""
        heads, n, _ = keys.shape
        self.pooling, self.group, self.limit = pooling, group, limit
        self.sinks, self.recent = sinks, recent
        self.next = 0  # the sweep's place among the entries that may be merged
        self.k, self.v = Shrinking(keys), Shrinking(values)
        self.importance = None if importance is None else Shrinking(importance[..., None])
        # groups are the same in every head, so one count an entry will do
        self.counts = Shrinking(torch.ones(n, 1, dtype=torch.int32, device=keys.device)) if weighted else None
        self._shrink()
        super().__init__(n, Kept.tokens(min(limit, n), self.k.length, n, heads))

    def _stores(self) -> list[Shrinking]:
        return [store for store in (self.k, self.v, self.importance, self.counts) if store is not None]

    def tensors(self) -> list[Tensor]:
        return [store.buffer for store in self._stores()]

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.k.append(keys[0])
        self.v.append(values[0])
        if self.importance is not None:
            self.importance.append(self.importance.buffer.new_zeros(len(keys[0]), keys.shape[2], 1))
        if self.counts is not None:
            self.counts.append(self.counts.buffer.new_ones(keys.shape[2], 1))
        self._shrink()

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        keys = self.k.view
        if self.importance is not None:
            grouped = query[0, :, 0].float().unflatten(0, (len(keys), -1))  # [kv, group, head_dim]
            weights = (grouped @ keys.float().mT * scaling).softmax(dim=-1)
            self.importance.view.add_(weights.sum(dim=1)[..., None])
        return dense_attention(query, keys[None], self.v.view[None], scaling)

    def _shrink(self) -> None:
        """Merge until the length is at most `limit`; all groups of one sweep at once."""
        while (excess := self.k.length - self.limit) > 0:
            mergeable = self.k.length - self.sinks - self.recent
            groups = min((mergeable - self.next) // self.group, -(-excess // (self.group - 1)))
            if groups == 0:
                self.next = 0
                continue
            start = self.sinks + self.next
            end = start + groups * self.group
            for store, rows in zip(self._stores(), self._pool(start, end), strict=True):
                store.splice(start, end, rows)
            self.next += groups

    def _pool(self, start: int, end: int) -> list[Tensor]:
        """Entries start … end-1 of every store, group by group brought to one: [..., groups, width]."""
        stored = [store.view[..., start:end, :].unflatten(-2, (-1, self.group)) for store in self._stores()]
        keys, values, *rest = stored  # [kv, groups, group, head_dim]
        if self.pooling == "max":
            return [keys.amax(dim=-2), values.amax(dim=-2)]
        if self.pooling == "mean":
            weights = rest[0].float() if rest else torch.ones(self.group, 1, device=keys.device)
            total = weights.sum(dim=-2)
            means = [((x.float() * weights).sum(dim=-2) / total).to(x.dtype) for x in (keys, values)]
            return means + [counts.sum(dim=-2, dtype=counts.dtype) for counts in rest]
        if self.pooling == "max_norm":
            winner = keys.float().norm(dim=-1).argmax(dim=-1)  # [kv, groups]; argmax takes the first of equals
        else:
            winner = self.group - 1 - rest[0][..., 0].flip(-1).argmax(dim=-1)
        return [x.take_along_dim(winner[..., None, None], dim=-2).squeeze(-2) for x in stored]
