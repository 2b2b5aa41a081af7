"""Selections of different numbers of tokens per head, for storages whose heads are equally long."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TypeVar

from kvbench.cache.base import LayerCache
from kvbench.cache.by_head import ByHeadLayer
from kvbench.cache.packed import flat_positions
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState

Held = TypeVar("Held")  # a storage


def by_head(
    store: Callable[[Held, LayerState, Selection], LayerCache],
) -> Callable[[Held, LayerState, Selection], LayerCache]:
    """Makes a storage's `store` of equally long heads take a ragged `Selection`, too: each head as a layer of one head.

    One wait for the device: for the numbers of tokens.
    """

    @wraps(store)
    def either(self: Held, layer: LayerState, selection: Selection) -> LayerCache:
        if not selection.ragged:
            return store(self, layer, selection)
        counts, masks = selection.counts, selection.mask(layer).flatten(0, 1)
        heads = [
            store(self, one_head(layer, head, len(counts)), Selection(flat_positions(mask, count)[None], count))
            for head, (mask, count) in enumerate(zip(masks, counts, strict=True))
        ]
        size = 0.0
        for head, count in zip(heads, counts, strict=True):
            assert head.kept is not None, "a cache of kept tokens says which"
            size += head.kept.r3 * count
        return ByHeadLayer(heads, layer.n, selection.kept(layer, r3=size / max(sum(counts), 1)))

    return either


def one_head(layer: LayerState, head: int, heads: int) -> LayerState:
    """The layer as if it had this one of `heads` heads that store: a KV head with its group, or a query head."""
    kv = head // (heads // layer.num_key_value_heads)
    group = layer.num_attention_heads // heads
    queries = None if layer.queries is None else layer.queries[head * group : (head + 1) * group]
    return replace(
        layer,
        keys=layer.keys[kv : kv + 1],
        values=layer.values[kv : kv + 1],
        num_attention_heads=group,
        queries=queries,
    )
