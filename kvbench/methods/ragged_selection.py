"""The tokens that a layer keeps where each of its heads keeps a number of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.cache.eviction_cuts import Cuts
from kvbench.cache.kept_positions import KeptPositions, chosen_positions
from kvbench.cache.packed import flat_positions
from kvbench.cache.reserve_ratio import Kept, RatioOver
from kvbench.prefill import LayerState


class Parted(NamedTuple):
    recent: Tensor  # indices [heads, last], ascending
    before: Tensor  # [all others] in heads · n, head after head


@dataclass(frozen=True)
class RaggedSelection:
    """The tokens of one layer to keep: as `Selection`, but of other numbers in other heads.

    `chosen`, bool [heads, n], where heads is num_key_value_heads, or num_attention_heads (every query head its own). A
    head may keep nothing.
    """

    chosen: Tensor
    nominal: int  # tokens per head, in the mean over heads, that the allocation gave the layer
    limit: int | None = None  # no head keeps more; None where that is not known without a wait for the device
    cuts: Cuts | None = None  # between the scores of what is kept and of the rest

    def longest(self, layer: LayerState) -> int:
        """No head keeps more tokens."""
        return layer.n if self.limit is None else self.limit

    def heads(self, layer: LayerState) -> int:
        """How many heads store tokens: the KV heads, or all query heads where each selects for itself."""
        return len(self.chosen)

    @cached_property
    def counts(self) -> list[int]:
        """Tokens of each head; one wait for the device when it is read first."""
        counts: list[int] = self.chosen.sum(dim=1).tolist()
        return counts

    def positions(self, layer: LayerState) -> KeptPositions:
        """The histogram of the kept tokens' positions in the prompt (see `kvbench.cache.kept_positions`)."""
        return chosen_positions(self.chosen, layer.marks)

    def kept(self, layer: LayerState, r2: float = 1.0, r3: float = 1.0, counts: Sequence[int] | None = None) -> Kept:
        """What the layer retained, for the reserve ratio; r2 and r3 are those of the storage.

        counts: the tokens of each head, where a storage has read them with sizes of its own.
        """
        counts = self.counts if counts is None else counts
        over: RatioOver = "query_heads" if len(counts) > layer.num_key_value_heads else "kv_heads"
        total = 2 * len(counts) * layer.n
        positions = self.positions(layer)
        return Kept(self.nominal, 2 * sum(counts), total, r2, r3, None, positions, over, tuple(counts), self.cuts)

    def mask(self, layer: LayerState) -> Tensor:
        """Which tokens the heads keep, bool [num_key_value_heads, heads that select per KV head, n], a copy."""
        return self.chosen.clone().unflatten(0, (layer.num_key_value_heads, -1))

    def parted(self, last: int) -> Parted:
        """The `last` tokens of every head, which all have as many, and those before them."""
        heads, n = self.chosen.shape
        rank = self.chosen.cumsum(dim=1)  # of a chosen token, from 1
        counts = rank[:, -1:]
        late = self.chosen & (rank > counts - last)
        recent = flat_positions(late.flatten(), heads * last).view(heads, last) % n
        return Parted(recent, flat_positions((self.chosen & ~late).flatten(), sum(self.counts) - heads * last))


def first_and_window(order: Tensor, counts: Tensor, n: int) -> Tensor:
    """The first counts[h] of the indices of each row of order [heads, len], and all from len to n: bool [heads, n]."""
    heads, length = order.shape
    chosen = torch.ones(heads, n, dtype=torch.bool, device=order.device)
    places = torch.arange(length, device=order.device)
    return chosen.scatter_(1, order, places < counts[:, None])
