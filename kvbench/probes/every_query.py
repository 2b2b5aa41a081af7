"""The attention of every query of a text, a tile of queries at a time."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from kvbench.ops.attention import causal_probabilities
from kvbench.ops.softmax import of_heads
from kvbench.prefill import LayerState

TILE = 128  # queries per tile: a constant, so memory stays O(n · heads)


class Tile(NamedTuple):
    """The attention of the queries start … end-1 to the tokens before `end`, in one group of query heads."""

    start: int
    end: int
    attention: Tensor  # summed over the group's heads, float32 [end - start, end]


def tiles(layer: LayerState) -> Iterator[Tile]:
    """The tiles of each group of query heads, one KV head after the other."""
    group = layer.num_attention_heads // layer.num_key_value_heads
    queries = layer.last_queries(layer.n)
    for head, keys in enumerate(layer.keys):
        heads = slice(head * group, (head + 1) * group)
        scaling = of_heads(layer.scaling, heads)  # each query head has a sink of its own
        for start in range(0, layer.n, TILE):
            end = min(start + TILE, layer.n)
            attention = causal_probabilities(queries[heads, start:end], keys[:end], start, scaling).probabilities
            yield Tile(start, end, attention.sum(dim=0))
