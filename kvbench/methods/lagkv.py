"""LagKV (Liang et al. 2025, arXiv 2504.04704): tokens that stand out against the next partition."""

from dataclasses import field

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.methods.base.method import Method
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection, top_indices
from kvbench.methods.storage.base import Storage, refuse_joint, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Number, Positive, Share, checked

FLAT = 1e-6  # a channel with a smaller range in the next partition counts as constant


@checked
class LagKV(Method):
    """Cut the prompt after the sinks into partitions, score each against the next one, and keep the best of each.

    Source: Liang et al. 2025, arXiv 2504.04704.

    Each channel is scaled by its minimum and maximum in the next partition. A token's spread is the standard deviation
    of its scaled channels. Its score is the softmax of the spread over its partition, summed for key and value. The
    sinks, the last partition and the tokens after it are kept; a prompt with fewer than two partitions is kept whole.

    sinks     first tokens, which are kept.
    lag       tokens of a partition.
    v_ratio   weight of the value's score.
    share     share of every partition to keep, as in the released code, whatever the ratio; r is larger, because both
              ends are kept. null: the rest of the budget, divided equally; the remainder goes to the last partitions.

    Compression happens once, after prefill; the released code goes on while decoding.
    """

    short = values(lag=16)

    sinks: NonNegative = 4
    lag: Positive = 128
    v_ratio: Number = 1.0
    share: Share | None = None
    storage: Storage = field(default_factory=Dense)

    def __post_init__(self) -> None:
        refuse_union(self.storage, "LagKV")
        refuse_joint(self.storage, "LagKV")
        self.takes_budget = self.share is None
        self.needs = self.storage.needs

    @property
    def minimum_budget(self) -> int:
        return self.sinks + 1

    def floor(self, n: int, num_layers: int) -> int:
        return max(self.minimum_budget, self._always_kept(n))

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        return self.storage.store(layer.stored, self.select(layer, budget))

    def select(self, layer: LayerState, budget: int) -> Selection:
        """The tokens to keep in each KV head, equally many in every head."""
        n = layer.n
        quotas = self.quotas(n, budget)
        if not quotas or sum(quotas) == len(quotas) * self.lag:
            return Selection.everything(layer)
        scored = slice(self.sinks, self.sinks + len(quotas) * self.lag)
        order = self.scores(layer).sort(dim=-1, descending=True, stable=True).indices
        ranks = order.argsort(dim=-1)
        chosen = layer.keys.new_ones(layer.num_key_value_heads, n, dtype=torch.float32)
        limits = torch.tensor(quotas).to(order.device)[:, None]
        chosen[:, scored] = (ranks < limits).flatten(1).float()
        kept = sum(quotas) + self._always_kept(n)
        return Selection(top_indices(chosen, kept), kept)

    def quotas(self, n: int, budget: int) -> list[int]:
        """Tokens to keep of each scored partition, the earliest first; empty if the whole prompt is kept."""
        count = (n - self.sinks) // self.lag - 1
        if count < 1 or (self.share is None and budget >= n):
            return []
        if self.share is not None:
            return [int(self.share * self.lag)] * count
        quota, extra = divmod(max(budget - self._always_kept(n), 0), count)
        return [quota + (partition >= count - extra) for partition in range(count)]

    def scores(self, layer: LayerState) -> Tensor:
        """Scores of the tokens of all partitions but the last: float32 [num_key_value_heads, partitions, lag]."""
        end = self.sinks + (layer.n - self.sinks) // self.lag * self.lag
        keys, values = (x[:, self.sinks : end].float().unflatten(1, (-1, self.lag)) for x in (layer.keys, layer.values))
        return lag_score(keys) + self.v_ratio * lag_score(values)

    def _always_kept(self, n: int) -> int:
        """How many tokens are always kept: sinks, the last partition and the tokens after it, or all."""
        partitions, rest = divmod(max(n - self.sinks, 0), self.lag)
        return n if partitions < 2 else self.sinks + self.lag + rest


def lag_score(x: Tensor) -> Tensor:
    """Softmax of the spread over each partition except the last: x [heads, P, lag, d] -> [heads, P-1, lag], float32.

    A channel that is constant in the next partition counts as 0.
    """
    low, high = x[:, 1:].aminmax(dim=2, keepdim=True)
    scaled = (x[:, :-1] - low) / (high - low).clamp_min(FLAT)
    return scaled.masked_fill(high - low < FLAT, 0).std(dim=-1).softmax(dim=-1)
