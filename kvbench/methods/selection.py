"""The tokens that a layer keeps: from scores to sorted indices, with ties broken the same way on every device."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.cache.eviction_cuts import Cuts
from kvbench.cache.kept_positions import KeptPositions, chosen_positions, kept_positions
from kvbench.cache.packed import flat_positions
from kvbench.cache.reserve_ratio import Kept, RatioOver
from kvbench.errors import UserError
from kvbench.prefill import LayerState
from kvbench.utils.own_code import caller_of, is_called_by_own


class Parted(NamedTuple):
    recent: Tensor  # indices [heads, last], ascending
    before: Tensor  # indices of all other tokens in the flattened [heads · n], head after head


@dataclass(frozen=True)
class Selection:
    """The tokens of one layer to keep per head: `indices`, equally many in every head, or the mask `chosen`.

    heads is num_key_value_heads, num_attention_heads (one set per query head), or 1 (one set for the layer; only with
    `indices`). Without indices and mask every token is kept.
    """

    indices: Tensor | None  # [heads, k], ascending in every row
    nominal: int  # the layer's tokens per head by the allocation, the mean over heads
    cuts: Cuts | None = None  # between the scores of kept and of dropped tokens
    chosen: Tensor | None = None  # bool [heads, n]; a head may keep nothing
    limit: int | None = None  # upper bound of the tokens of a head of `chosen`; None: only the device knows it
    equal: bool = False  # every head of `chosen` keeps `limit`
    histogram: KeptPositions | None = None  # histogram of the positions; None: counted when it is read

    def __post_init__(self) -> None:
        """Raise UserError for indices that do not ascend, unless a histogram comes with an order of its own.

        On a GPU this waits for the device, so there only for a class outside kvbench.
        """
        if self.indices is None or self.histogram is not None:
            return
        if self.indices.is_cuda and not is_called_by_own(__file__):
            return
        if (falls := self.indices.diff(dim=1) <= 0).any():
            row, at = falls.nonzero()[0].tolist()
            before, after = self.indices[row, at : at + 2].tolist()
            raise UserError(
                f"{caller_of(__file__)} made a Selection with {after} after {before} in row {row} of its indices: they "
                "must ascend, each token once, as those of `top_indices` and `with_window` do"
            )

    @classmethod
    def everything(cls, layer: LayerState) -> "Selection":
        return cls(None, layer.n)

    @property
    def ragged(self) -> bool:
        """Whether heads may keep different numbers of tokens."""
        return self.chosen is not None and not self.equal

    def count(self, layer: LayerState) -> int:
        """Tokens kept per head, if all heads keep equally many."""
        assert not self.ragged, "require_ragged() refuses a ragged selection where heads must be equally long"
        return self.longest(layer)

    def longest(self, layer: LayerState) -> int:
        """The most tokens that a head may keep."""
        if self.indices is not None:
            return int(self.indices.shape[1])
        return layer.n if self.limit is None else self.limit

    def heads(self, layer: LayerState) -> int:
        """How many heads store tokens: the KV heads, or all query heads if query heads select separately."""
        rows = self.indices if self.chosen is None else self.chosen
        return layer.num_key_value_heads if rows is None else max(layer.num_key_value_heads, len(rows))

    @cached_property
    def counts(self) -> list[int]:
        """Tokens of each head of `chosen`. One wait for the device at the first reading."""
        assert self.chosen is not None, "other selections have one number for all heads"
        return self.chosen.sum(dim=1).tolist()

    def positions(self, layer: LayerState) -> KeptPositions:
        """The histogram of the kept tokens' positions in the prompt (see `kvbench.cache.kept_positions`)."""
        if self.histogram is not None:
            return self.histogram
        if self.chosen is not None:
            return chosen_positions(self.chosen, layer.marks)
        return kept_positions(self.indices, layer.n, layer.marks)

    def kept(self, layer: LayerState, r2: float = 1.0, r3: float = 1.0, counts: Sequence[int] | None = None) -> Kept:
        """The retained tokens of the layer, for the reserve ratio; r2 and r3 come from the storage.

        counts: the tokens of each head, if a storage has already read those of a ragged selection.
        """
        heads = self.heads(layer)
        per_head = tuple(self.counts if counts is None else counts) if self.ragged else None
        tokens = heads * self.count(layer) if per_head is None else sum(per_head)
        over: RatioOver = "query_heads" if heads > layer.num_key_value_heads else "kv_heads"
        positions, total = self.positions(layer), 2 * heads * layer.seen
        return Kept(self.nominal, 2 * tokens, total, r2, r3, None, positions, over, per_head, self.cuts)

    def mask(self, layer: LayerState) -> Tensor:
        """The kept tokens, bool [num_key_value_heads, heads that select per KV head, n]. Do not write it."""
        heads, indices = layer.num_key_value_heads, self.indices
        if self.chosen is not None:
            return self.chosen.unflatten(0, (heads, -1))
        if indices is None:
            return torch.ones(heads, 1, layer.n, dtype=torch.bool, device=layer.keys.device)
        mask = torch.zeros(len(indices), layer.n, dtype=torch.bool, device=indices.device)
        mask.scatter_(1, indices, True)
        return mask.expand(max(len(mask), heads), -1).unflatten(0, (heads, -1))

    def of(self, x: Tensor) -> Tensor:
        """The kept rows of x [num_key_value_heads, n, width]: [heads, k, width]; x itself if every token is kept."""
        assert self.chosen is None, "heads of different lengths have no rows of one length"
        return x if self.indices is None else gather(x, self.indices)

    def parted(self, last: int) -> Parted:
        """The last `last` chosen tokens of every head, which must have that many, and the chosen tokens before them."""
        assert self.chosen is not None, "only a selection with a mask is parted"
        heads, n = self.chosen.shape
        rank = self.chosen.cumsum(dim=1)  # of a chosen token, from 1
        counts = rank[:, -1:]
        late = self.chosen & (rank > counts - last)
        recent = flat_positions(late.flatten(), heads * last).view(heads, last) % n
        return Parted(recent, flat_positions((self.chosen & ~late).flatten(), sum(self.counts) - heads * last))


def ranking(scores: Tensor) -> Tensor:
    """Indices [heads, len] from the largest of scores [heads, len] to the smallest; ties: the smaller index first.

    A stable sort, because max pooling makes many ties and `torch.topk` orders them differently on different devices.
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


def first_and_window(order: Tensor, counts: Tensor, n: int) -> Tensor:
    """The mask, bool [heads, n], of the first counts[h] indices in row h of order [heads, len] and of len … n-1."""
    heads, length = order.shape
    chosen = torch.ones(heads, n, dtype=torch.bool, device=order.device)
    places = torch.arange(length, device=order.device)
    return chosen.scatter_(1, order, places < counts[:, None])


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
