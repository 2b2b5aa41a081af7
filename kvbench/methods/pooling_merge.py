"""Pooling-merge (Jain et al., Georgia Tech, "Memory Reduction for LLM Inference via KV-Cache Compression", §3)."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.selection import reduce_group
from kvbench.methods.storage.base import KeptLayer
from kvbench.ops import softmax
from kvbench.ops.attention import dense_attention
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative, Positive, checked


@checked
class PoolingMerge(Method):
    """Merge older tokens instead of evicting them, more of them in higher layers (Jain et al., "Memory Reduction for
    LLM Inference via KV-Cache Compression").

    Layer l holds at most L_l entries, sinks included, falling linearly from L_0 to L_0/beta (§3.1). Entries above
    that limit are merged from the oldest on, at the end of prefill and during decoding (§3.2, `MergingLayer`). The
    paper does not specify group, recent region, trigger and the measure behind "best"; these are kvbench's choices.

    pooling    mean, max (element-wise), max_norm (the entry with the longest key), best (the entry that received the
               most attention from the last `window` prompt queries and all decoded queries, summed over a KV head's
               query heads).
    group      entries that one merge replaces by a single entry.
    beta       L_0 over the limit of the highest layer.
    alloc      corrected: L_l = L_0·(1 + l/(m-1)·(1/beta - 1)), which ends at L_0/beta. printed: the paper's divisor
               m, with which L_l ends above L_0/beta.
    l0         L_0 in tokens, the paper's parameter; the method then takes no ratio or budget. null: the ratio or
               budget is the mean of L_l over layers and L_0 follows from beta. Where L_0 would exceed the prompt or
               the highest layer's limit fall below its minimum, that end is clipped and the slope reduced so that the
               mean stays.
    recent     last tokens that are never merged; null: half of L_l. Reduced if it leaves no room for a group.
    weighted   pooling=mean only: an entry's weight is the number of tokens merged into it. The paper's text averages
               averages.

    L_l is rounded down, to at least sinks + 1 + group. A merge frees group - 1 entries at a time, so a layer may hold
    up to group - 2 entries fewer than L_l; r counts the entries held.
    """

    pooling: Literal["mean", "max", "max_norm", "best"] = "best"
    group: Annotated[int, Field(ge=2)] = 2
    beta: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 4
    alloc: Literal["corrected", "printed"] = "corrected"
    l0: Positive | None = None
    sinks: NonNegative = 4
    recent: NonNegative | None = None
    weighted: bool = False
    window: Positive = 32

    compress_at = "every_step"

    def __post_init__(self) -> None:
        if self.l0 is not None and self.l0 < self.minimum_budget:
            raise UserError(f"l0={self.l0} must be an integer of at least {self.minimum_budget}: sinks + 1 + group")
        if self.weighted and self.pooling != "mean":
            raise UserError(f"weighted=true weighs the entries of a mean: it needs pooling=mean, not {self.pooling}")
        self.takes_budget = self.l0 is None
        if self.pooling == "best":
            self.needs = Needs(window=self.window)

    @property
    def minimum_budget(self) -> int:
        return self.sinks + 1 + self.group

    @property
    def divisible(self) -> bool:
        return super().divisible and self.beta == 1

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    def limits(self, budget: int, n: int, num_layers: int) -> list[int]:
        """L_l of every layer in entries, for a mean of `budget`, or for L_0 = `l0` if it is set."""
        divisor = max(1, num_layers - 1) if self.alloc == "corrected" else num_layers
        depth = [layer / divisor for layer in range(num_layers)]  # l/(m-1), or the printed l/m
        mean_depth = sum(depth) / num_layers
        slope = 1 / self.beta - 1
        first: float
        if self.l0 is not None:
            first = self.l0
        else:
            first = budget / (1 + mean_depth * slope)
            if self.minimum_budget <= budget and first * (1 + depth[-1] * slope) < self.minimum_budget:
                fall = (budget - self.minimum_budget) / (depth[-1] - mean_depth)
                first = budget + mean_depth * fall
                slope = -fall / first
            if budget >= n:
                first, slope = budget, 0
            elif first > n:
                first, slope = n, (budget / n - 1) / mean_depth
        # 1e-9 absorbs rounding errors of whole numbers
        return [max(int(first * (1 + x * slope) + 1e-9), self.minimum_budget) for x in depth]

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        limit = self.limits(budget, layer.n, num_layers)[index]
        recent = limit // 2 if self.recent is None else self.recent
        importance = None
        if self.pooling == "best":
            importance = reduce_group(layer.window_votes(self.window), layer.num_key_value_heads, "sum")
        return MergingLayer(
            layer.keys,
            layer.values,
            self.pooling,
            self.group,
            limit,
            self.sinks,
            min(recent, limit - self.sinks - self.group + 1),
            importance,
            self.weighted,
        )


class Shrinking(Growing):
    """A growing tensor in which a range of rows can be replaced by fewer."""

    def splice(self, start: int, end: int, rows: Tensor) -> None:
        """Replace rows start … end-1 by `rows` [..., k, width], k <= end - start."""
        # a new buffer, since the old buffer may be the prompt's, which is shared; of the old size if that had slack
        freed = end - start - rows.shape[-2]
        slack = self.buffer[..., : freed if self.length < self.buffer.shape[-2] else 0, :]
        self.buffer = torch.cat([self.buffer[..., :start, :], rows, self.buffer[..., end:, :], slack], dim=-2)
        self.length -= freed


class MergingLayer(LayerCache):
    """At most `limit` entries: sinks, merged entries, and the last `recent` tokens.

    While there are more entries, the oldest `group` entries that are neither sinks nor recent are merged into one.
    Merging sweeps from old to new over these entries and restarts at the oldest once fewer than `group` are left, so
    every entry is merged once before any is merged again. Requires sinks + recent + group - 1 <= limit.

    Keys are pooled after RoPE, and new tokens keep their true positions. `best` takes the later of equal entries.
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
        self.next = 0  # index of the sweep among the entries that may be merged
        self.k, self.v = Shrinking(keys), Shrinking(values)
        self.importance = None if importance is None else Shrinking(importance[..., None])
        # [n, 1]: groups are the same in every head, so one count per entry suffices
        self.counts = Shrinking(torch.ones(n, 1, dtype=torch.int32, device=keys.device)) if weighted else None
        self._shrink()
        super().__init__(n, Kept.tokens(min(limit, n), self.k.length, n, heads))

    def _stores(self) -> list[Shrinking]:
        return [store for store in (self.k, self.v, self.importance, self.counts) if store is not None]

    def tensors(self) -> list[Tensor]:
        return [store.buffer for store in self._stores()]

    def float32_tensors(self) -> list[Tensor]:
        return [] if self.importance is None else [self.importance.buffer]

    @property
    def filled_bytes(self) -> int:
        return filled(*self._stores())

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.k.append(keys[0])
        self.v.append(values[0])
        if self.importance is not None:
            self.importance.append(self.importance.buffer.new_zeros(len(keys[0]), keys.shape[2], 1))
        if self.counts is not None:
            self.counts.append(self.counts.buffer.new_ones(keys.shape[2], 1))
        self._shrink()

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        keys = self.k.view
        if self.importance is not None:
            grouped = query[0, :, 0].float().unflatten(0, (len(keys), -1))  # [kv, group, head_dim]
            logits = softmax.capped_(grouped @ keys.float().mT * softmax.plain(scaling), scaling)
            weights = softmax.weights(logits, scaling)
            self.importance.view.add_(weights.sum(dim=1)[..., None])
        return dense_attention(query, keys[None], self.v.view[None], scaling)

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return dense_attention(query, self.k.view[None], self.v.view[None], scaling)

    def _shrink(self) -> None:
        """Merge until at most `limit` entries are left; all groups of one sweep at once."""
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
        """Entries start … end-1 of every store, each group reduced to one entry: [..., groups, width]."""
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
        index = winner[..., None, None]  # [kv, groups, 1, 1]
        return [x.gather(-2, index.expand(*x.shape[:-2], 1, x.shape[-1])).squeeze(-2) for x in stored]
