"""Which tokens stay: scores to sorted indices, with ties broken the same way everywhere."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.cache.kept_positions import where
from kvbench.errors import UserError
from kvbench.prefill import LayerState


@dataclass(frozen=True)
class Selection:
    """The tokens of one layer to keep, per head.

    `indices` [heads, k] ascend in every row; heads is 1 (one set for the layer), num_key_value_heads, or
    num_attention_heads (every query head its own). None is every token.
    """

    indices: Tensor | None
    nominal: int  # tokens per head that the allocation asked for

    @classmethod
    def everything(cls, layer: LayerState) -> "Selection":
        return cls(None, layer.n)

    def count(self, layer: LayerState) -> int:
        """Tokens kept per head."""
        return layer.n if self.indices is None else self.indices.shape[1]

    def heads(self, layer: LayerState) -> int:
        """Heads that are stored when each keeps its own tokens."""
        return layer.num_key_value_heads if self.indices is None else max(layer.num_key_value_heads, len(self.indices))

    def where(self, layer: LayerState) -> str:
        """Where in the prompt the kept tokens lie."""
        return where(self.indices, layer.n)

    def of(self, x: Tensor) -> Tensor:
        """The kept rows of x [num_key_value_heads, n, width]: [heads, k, width]; x itself for every token."""
        return x if self.indices is None else gather(x, self.indices)


def top_indices(scores: Tensor, k: int) -> Tensor:
    """Indices [heads, k] of the k largest of scores [heads, len], ascending; ties go to the smaller index.

    `torch.topk` leaves ties to the device; max pooling makes ties the normal case, so a stable sort it is.
    """
    order = torch.sort(scores.float(), dim=-1, descending=True, stable=True).indices
    return order[:, :k].sort(dim=-1).values


def with_window(chosen: Tensor, n: int, window: int) -> Tensor:
    """The chosen indices [heads, k] and the last `window` of n positions: [heads, k + window], ascending."""
    tail = torch.arange(n - window, n, device=chosen.device).expand(chosen.shape[0], window)
    return torch.cat([chosen, tail], dim=1)


def sinks_and_recent(n: int, sinks: int, recent: int, device: torch.device) -> Tensor:
    """The first `sinks` and last `recent` of n positions as a set: [1, at most sinks + recent], ascending."""
    positions = torch.arange(n, device=device)
    return positions[(positions < sinks) | (positions >= n - recent)][None]


def reduce_group(scores: Tensor, heads: int, how: str) -> Tensor:
    """Scores per query head [num_attention_heads, len] brought to [heads, len], groups of heads together."""
    grouped = scores.unflatten(0, (heads, -1))  # [heads, group, len]
    if how == "mean":
        return grouped.mean(dim=1)
    if how == "max":
        return grouped.amax(dim=1)
    if how == "sum":
        return grouped.sum(dim=1)
    raise UserError(f"group_reduce={how!r} is not one of mean, max, sum")


def gather(x: Tensor, indices: Tensor) -> Tensor:
    """x [heads, n, head_dim] at indices [heads or num_attention_heads or 1, k]: [.., k, head_dim], a copy."""
    heads = max(x.shape[0], indices.shape[0])
    indices = indices.expand(heads, -1)
    x = x.repeat_interleave(heads // x.shape[0], dim=0) if heads > x.shape[0] else x
    return x.gather(1, indices[..., None].expand(-1, -1, x.shape[2]))
