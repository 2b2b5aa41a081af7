"""Ragged selections for storages whose heads must be equally long: each head is stored as a layer of one head."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TypeVar

from kvbench.cache.base import LayerCache
from kvbench.cache.by_head import ByHeadLayer
from kvbench.cache.packed import flat_positions
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState

AnyStorage = TypeVar("AnyStorage")


def by_head(
    store: Callable[[AnyStorage, LayerState, Selection], LayerCache],
) -> Callable[[AnyStorage, LayerState, Selection], LayerCache]:
    """Make a `store` of equally long heads take ragged selections, too: it stores each head as a layer of one head.

    One wait for the device, for the numbers of tokens.
    """

    @wraps(store)
    def store_any(self: AnyStorage, layer: LayerState, selection: Selection) -> LayerCache:
        if not selection.ragged:
            return store(self, layer, selection)
        counts, masks = selection.counts, selection.mask(layer).flatten(0, 1)
        heads = [
            store(self, one_head(layer, head, len(counts)), Selection(flat_positions(mask, count)[None], count))
            for head, (mask, count) in enumerate(zip(masks, counts, strict=True))
        ]
        size = 0.0
        for head, count in zip(heads, counts, strict=True):
            assert head.kept is not None, "`store` passes its selection's `kept`"
            size += head.kept.r3 * count
        return ByHeadLayer(heads, layer.n, selection.kept(layer, r3=size / max(sum(counts), 1)))

    return store_any


def one_head(layer: LayerState, head: int, heads: int) -> LayerState:
    """The layer with only one of the `heads` heads that store tokens: a KV head and its group, or a query head."""
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
