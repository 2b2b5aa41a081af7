"""Pooling-merge: older tokens are pooled instead of evicted, more so in higher layers."""

from dataclasses import dataclass

from kvbench.cache.base import LayerCache
from kvbench.cache.merging import MergingLayer
from kvbench.errors import UserError
from kvbench.methods.base import Method, at_least, choice, is_number
from kvbench.methods.selection import reduce_group
from kvbench.prefill import LayerState, Needs


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
