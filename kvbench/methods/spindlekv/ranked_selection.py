"""Ranks of the tokens of layers, from which a comparison selects any number of tokens per head."""

from collections.abc import Callable, Sequence
from itertools import islice

import torch
from torch import Tensor

from kvbench.cache.kept_positions import positions_of_layers
from kvbench.methods.selection import Selection, ranking
from kvbench.methods.spindlekv.layer_groups import layer_groups
from kvbench.prefill import LayerState

SORTING = 40  # bytes of temporary memory per sorted score


class Ranks:
    """Ranks of the tokens of layers: 0 for the best token of a head, -1 for all tokens of the window.

    A rank takes 4 bytes in every head that selects.
    """

    def __init__(self, layers: Sequence[LayerState], scores: Callable[[LayerState], Tensor], window: int) -> None:
        """scores(layer): the scores [heads, n - window] of a layer's tokens before the window."""
        sizes = [layer.num_attention_heads * layer.n * SORTING for layer in layers]
        kinds = [(layer.keys.device, layer.keys.shape, layer.num_attention_heads) for layer in layers]
        groups = layer_groups(layers, sizes, kinds)
        self.ranks = [ranked(torch.stack([scores(layer) for layer in layers[group]]), window) for group in groups]
        self.window, self.marks = window, layers[0].marks

    def first(self, tokens: Sequence[int]) -> list[Selection]:
        """The selection of the window and the best other tokens, tokens[i] in total, in every head of layer i."""
        selections: list[Selection] = []
        left = iter(tokens)
        for ranks in self.ranks:
            counts = list(islice(left, len(ranks)))
            most = torch.tensor([count - self.window for count in counts], dtype=torch.int32)
            chosen = ranks < most.to(ranks.device, non_blocking=True)[:, None, None]
            for mask, count, positions in zip(chosen, counts, positions_of_layers(chosen, self.marks), strict=True):
                selections.append(Selection(None, count, chosen=mask, limit=count, equal=True, histogram=positions))
        return selections


def ranked(scores: Tensor, window: int) -> Tensor:
    """Ranks, int32 [layers, heads, len + window], from scores [layers, heads, len] of the tokens before the window."""
    layers, heads, length = scores.shape
    order = ranking(scores.flatten(0, 1))
    places = torch.arange(length, dtype=torch.int32, device=scores.device).expand_as(order)
    ranks = places.new_full((layers * heads, length + window), -1)
    return ranks.scatter_(1, order, places).view(layers, heads, -1)
