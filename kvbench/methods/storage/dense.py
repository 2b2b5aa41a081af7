"""Keys and values as they are."""

from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.sequence import RawSequence
from kvbench.cache.union import UnionLayer
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class Dense(Storage):
    """Keys and values as they are.

    `layout` matters where query heads select for themselves. unfolded: a copy of K and V per query head,
    g times the bytes per token, as SnapKV's and PyramidKV's code store it. union: every token that any head
    of a group kept, once, with a bit per head; the same outputs.
    """

    layout: Literal["unfolded", "union"] = "unfolded"

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        kept = selection.kept(layer)
        if self.layout == "union" and selection.heads(layer) > layer.num_key_value_heads:
            return UnionLayer(layer.keys, layer.values, selection.indices, layer.n, kept)
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        return DenseLayer(keys, values, layer.n, kept)

    def key_sequence(self, rows: Tensor, recent: bool = True) -> RawSequence:
        """Keys [heads, len, head_dim], whether they are the end of a text or not."""
        return RawSequence(rows)

    value_sequence = key_sequence
