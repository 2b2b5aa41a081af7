"""Pooling-merge: older tokens are pooled instead of evicted, more so in higher layers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base import Method
from kvbench.methods.selection import reduce_group
from kvbench.ops.attention import dense_attention
from kvbench.prefill import LayerState, Needs
from kvbench.utils.validation import at_least, choice, is_number


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


@dataclass
class PoolingMerge(Method):
    """Memory Reduction for LLM Inference via KV-Cache Compression (Jain et al., Georgia Tech), §3.

    Layer l holds at most L_l entries, sinks included, falling linearly from L_0 to L_0/beta (§3.1); whatever
    exceeds them is merged from the oldest on, at the end of prefill and all through decoding (§3.2,
    `MergingLayer`). The paper leaves group, recent region, trigger and the measure behind "best" open: those
    of kvbench are its own. A class beside `Eviction` because entries are merged, and go on being merged.

    pooling   mean, max (element-wise), max_norm (the entry with the longest key), best (the entry that got
              the most attention: from the last `window` prompt queries and all decoded ones, summed over a
              KV head's query heads).
    weighted  mean only: an entry counts as many times as tokens went into it. The paper's text averages
              averages.
    recent    tokens at the end that are never merged; null is half of L_l. At most what leaves a group.
    alloc     corrected: L_l = L_0·(1 + l/(m-1)·(1/beta - 1)), which ends at L_0/beta. printed: the paper's
              divisor m, which does not.
    l0        L_0, the paper's parameter; then no ratio or budget is taken. null: the ratio or budget is the
              mean of L_l over layers and L_0 follows from beta; where that would exceed the prompt, or the
              highest layer fall below its least, these are the ends and the slope so much flatter that the
              mean stays.

    L_l is rounded down, to sinks + 1 + group at least. A merge frees group - 1 entries at a time, so up to
    group - 2 fewer than L_l may be held; r counts what is.
    """

    pooling: str = "best"
    group: int = 2
    beta: float = 4
    alloc: str = "corrected"
    l0: int | None = None
    sinks: int = 4
    recent: int | None = None
    weighted: bool = False
    window: int = 32

    compress_at = "every_step"

    def __post_init__(self):
        choice("pooling", self.pooling, ("mean", "max", "max_norm", "best"))
        choice("alloc", self.alloc, ("corrected", "printed"))
        at_least("group", self.group, 2)
        at_least("sinks", self.sinks, 0)
        at_least("window", self.window, 1)
        if not is_number(self.beta) or self.beta < 1:
            raise UserError(f"beta={self.beta!r} must be a number of at least 1")
        if self.recent is not None:
            at_least("recent", self.recent, 0)
        if self.l0 is not None:
            at_least("l0", self.l0, self.minimum_budget)
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

    def limits(self, budget: int, n: int, num_layers: int) -> list[int]:
        """L_l of every layer, for a mean of `budget` or, where it is given, for `l0`."""
        divisor = max(1, num_layers - 1) if self.alloc == "corrected" else num_layers
        depth = [layer / divisor for layer in range(num_layers)]  # l/(m-1), or the printed l/m
        mean_depth = sum(depth) / num_layers
        first, slope = self.l0, 1 / self.beta - 1
        if first is None:
            first = budget / (1 + mean_depth * slope)
            if self.minimum_budget <= budget and first * (1 + depth[-1] * slope) < self.minimum_budget:
                fall = (budget - self.minimum_budget) / (depth[-1] - mean_depth)
                first = budget + mean_depth * fall
                slope = -fall / first
            if budget >= n:
                first, slope = budget, 0
            elif first > n:
                first, slope = n, (budget / n - 1) / mean_depth
        # 1e-9 forgives float noise on whole numbers
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
