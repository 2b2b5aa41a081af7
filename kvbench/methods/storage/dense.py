"""Keys and values, stored unchanged."""

from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.ragged import RaggedLayer, UnionLayer
from kvbench.cache.sequence import RawSequence
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.ops.host_numbers import read
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class Dense(Storage):
    """Keys and values in the model's dtype.

    `layout` matters if query heads select tokens separately. unfolded: a copy of K and V per query head, g times the
    bytes per token, as in SnapKV's and PyramidKV's code. union: each token that any head of a group keeps is stored
    once, with a bit per head; the outputs are the same.
    """

    layout: Literal["unfolded", "union"] = "unfolded"

    takes_ragged = batches = True

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        if self.layout == "union" and selection.heads(layer) > layer.num_key_value_heads:
            return self._union(layer, selection)
        kept = selection.kept(layer)
        if selection.ragged:
            chosen = selection.mask(layer).flatten(0, 1)
            return RaggedLayer(layer.keys, layer.values, chosen, layer.n, kept, selection.counts)
        return DenseLayer(selection.of(layer.keys), selection.of(layer.values), layer.n, kept)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    @property
    def unfolds(self) -> bool:
        return self.layout == "unfolded"

    def _union(self, layer: LayerState, selection: Selection) -> UnionLayer:
        """One wait for the device: for the sizes of unions and heads."""
        chosen = selection.mask(layer)
        lengths, counts = read(chosen.any(dim=1).sum(dim=1), chosen.sum(dim=2))
        kept = selection.kept(layer, counts=counts)
        return UnionLayer(layer.keys, layer.values, chosen, layer.n, kept, lengths)

    def key_sequence(self, rows: Tensor, recent: bool = True) -> RawSequence:
        """Keys [heads, len, head_dim]; `recent` makes no difference."""
        return RawSequence(rows)

    value_sequence = key_sequence
