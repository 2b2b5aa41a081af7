"""The tokens of layers in the order in which their heads keep them, from which those of any number are a comparison."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from kvbench.cache.kept_positions import KeptPositions, positions_of_layers
from kvbench.methods.layer_groups import layer_groups
from kvbench.methods.selection import ranking
from kvbench.prefill import LayerState

SORTING = 40  # bytes that sorting takes for each score while it lasts


@dataclass(frozen=True)
class RankedSelection:
    """The tokens of one layer to keep, as many in every head: what `Selection` says, by a mask."""

    chosen: Tensor  # bool [heads, n]; heads is num_key_value_heads or num_attention_heads
    tokens: int  # of each head
    histogram: KeptPositions

    @property
    def nominal(self) -> int:
        return self.tokens

    def longest(self, layer: LayerState) -> int:
        return self.tokens

    def heads(self, layer: LayerState) -> int:
        return len(self.chosen)

    def positions(self, layer: LayerState) -> KeptPositions:
        return self.histogram

    def mask(self, layer: LayerState) -> Tensor:
        """Which tokens the heads keep, bool [num_key_value_heads, heads that select per KV head, n], not a copy."""
        return self.chosen.unflatten(0, (layer.num_key_value_heads, -1))


class Ranks:
    """Of the tokens of layers: 0 for the best of a head, and -1 for those of the window, which come before it.

    Each takes 4 bytes in every head that selects.
    """

    def __init__(self, layers: Sequence[LayerState], scores: Callable[[LayerState], Tensor], window: int) -> None:
        """`scores` [heads, n - window] of a layer's tokens before the window."""
        sizes = [layer.num_attention_heads * layer.n * SORTING for layer in layers]
        kinds = [(layer.keys.device, layer.keys.shape, layer.num_attention_heads) for layer in layers]
        groups = layer_groups(layers, sizes, kinds)
        self.ranks = [ranked(torch.stack([scores(layer) for layer in layers[group]]), window) for group in groups]
        self.window, self.marks = window, layers[0].marks

    def first(self, tokens: Sequence[int]) -> list[RankedSelection]:
        """In every head of layer i the window and the best other tokens, tokens[i] in all."""
        parts: list[tuple[Tensor, int, KeptPositions]] = []
        left = iter(tokens)
        for ranks in self.ranks:
            own = list(islice(left, len(ranks)))
            most = torch.tensor([count - self.window for count in own], dtype=torch.int32)
            chosen = ranks < most.to(ranks.device, non_blocking=True)[:, None, None]
            parts += zip(chosen, own, positions_of_layers(chosen, self.marks), strict=True)
        return [RankedSelection(*part) for part in parts]


def ranked(scores: Tensor, window: int) -> Tensor:
    """int32 [layers, heads, len + window], from scores [layers, heads, len] of the tokens before the window."""
    layers, heads, length = scores.shape
    order = ranking(scores.flatten(0, 1))
    places = torch.arange(length, dtype=torch.int32, device=scores.device).expand_as(order)
    ranks = places.new_full((layers * heads, length + window), -1)
    return ranks.scatter_(1, order, places).view(layers, heads, -1)
