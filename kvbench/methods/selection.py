"""The tokens that a layer keeps: from scores to sorted indices, with ties broken the same way on every device."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvbench.cache.eviction_cuts import Cuts
from kvbench.cache.kept_positions import KeptPositions, kept_positions
from kvbench.cache.reserve_ratio import Kept, RatioOver
from kvbench.prefill import LayerState


@dataclass(frozen=True)
class Selection:
    """The tokens of one layer to keep, per head.

    `indices` [heads, k] ascend in every row; heads is 1 (one set for the layer), num_key_value_heads, or
    num_attention_heads (every query head its own). None is every token.
    """

    indices: Tensor | None
    nominal: int  # tokens per head that the allocation gave the layer
    cuts: Cuts | None = None  # between the scores of what is kept and of the rest

    @classmethod
    def everything(cls, layer: LayerState) -> "Selection":
        return cls(None, layer.n)

    def count(self, layer: LayerState) -> int:
        """Tokens kept per head."""
        return layer.n if self.indices is None else self.indices.shape[1]

    longest = count  # no head keeps more

    def heads(self, layer: LayerState) -> int:
        """How many heads store tokens: the KV heads, or all query heads where each selects for itself."""
        return layer.num_key_value_heads if self.indices is None else max(layer.num_key_value_heads, len(self.indices))

    def positions(self, layer: LayerState) -> KeptPositions:
        """The histogram of the kept tokens' positions in the prompt (see `kvbench.cache.kept_positions`)."""
        return kept_positions(self.indices, layer.n, layer.marks)

    def kept(self, layer: LayerState, r2: float = 1.0, r3: float = 1.0) -> Kept:
        """What the layer retained, for the reserve ratio; r2 and r3 are those of the storage."""
        heads = self.heads(layer)
        over: RatioOver = "query_heads" if heads > layer.num_key_value_heads else "kv_heads"
        kept = Kept.tokens(self.nominal, self.count(layer), layer.n, heads, r2, r3, self.positions(layer), over)
        return replace(kept, cuts=self.cuts)

    def mask(self, layer: LayerState) -> Tensor:
        """Which tokens the heads keep, bool [num_key_value_heads, heads that select per KV head, n], a copy."""
        heads, indices = layer.num_key_value_heads, self.indices
        if indices is None:
            return torch.ones(heads, 1, layer.n, dtype=torch.bool, device=layer.keys.device)
        mask = torch.zeros(len(indices), layer.n, dtype=torch.bool, device=indices.device)
        mask.scatter_(1, indices, True)
        return mask.expand(max(len(mask), heads), -1).clone().unflatten(0, (heads, -1))

    def of(self, x: Tensor) -> Tensor:
        """The kept rows of x [num_key_value_heads, n, width]: [heads, k, width]; x itself for every token."""
        return x if self.indices is None else gather(x, self.indices)


def ranking(scores: Tensor) -> Tensor:
    """Indices [heads, len] from the largest of scores [heads, len] to the smallest; ties: the smaller index first.

    A stable sort, because `torch.topk` orders ties differently from device to device and max pooling makes many.
    """
    return torch.sort(scores.float(), dim=-1, descending=True, stable=True).indices


def top_indices(scores: Tensor, k: int) -> Tensor:
    """Indices [heads, k] of the k largest of scores [heads, len], ascending; ties go to the smaller index."""
    return first(ranking(scores), k)


def first(order: Tensor, k: int) -> Tensor:
    """The first k of each row of indices order [heads, len], ascending: [heads, k]."""
    return order[:, :k].sort(dim=-1).values


def with_window(chosen: Tensor, n: int, window: int) -> Tensor:
    """The chosen indices [heads, k] and the last `window` of n positions: [heads, k + window], ascending."""
    tail = torch.arange(n - window, n, device=chosen.device).expand(chosen.shape[0], window)
    return torch.cat([chosen, tail], dim=1)


def sinks_and_recent(n: int, sinks: int, recent: int, device: torch.device) -> Tensor:
    """The first `sinks` and last `recent` of n positions as a set: [1, at most sinks + recent], ascending."""
    first = min(sinks, n)
    rest = torch.arange(max(n - recent, first), n, device=device)
    return torch.cat([torch.arange(first, device=device), rest])[None]


def reduce_group(scores: Tensor, heads: int, how: str) -> Tensor:
    """Scores of query heads [num_attention_heads, len] reduced within each group to [heads, len].

    `how` is mean, max or sum.
    """
    grouped = scores.unflatten(0, (heads, -1))  # [heads, group, len]
    reduce = {"mean": grouped.mean, "max": grouped.amax, "sum": grouped.sum}[how]
    return reduce(dim=1)


def gather(x: Tensor, indices: Tensor) -> Tensor:
    """x [heads, n, head_dim] at indices [heads or num_attention_heads or 1, k]: [.., k, head_dim], a copy."""
    heads = max(x.shape[0], indices.shape[0])
    indices = indices.expand(heads, -1)
    x = x.repeat_interleave(heads // x.shape[0], dim=0) if heads > x.shape[0] else x
    return x.gather(1, indices[..., None].expand(-1, -1, x.shape[2]))
