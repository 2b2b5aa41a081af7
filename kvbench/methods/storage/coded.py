"""Storage as codes of single tokens: what the formats have in common."""

from abc import abstractmethod
from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import CodedLayer
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage
from kvbench.methods.storage.by_head import by_head
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState


class CodedStorage(Storage):
    """Keys and values as codes of single tokens, quantised when they are appended, keys after RoPE: one class with
    `sequence` and `least_share`."""

    never_full = "quantised"

    takes_ragged = True

    @abstractmethod
    def sequence(self, which: Literal["k", "v"], rows: Tensor) -> CodedSequence:
        """The codes of the keys (k) or the values (v) of a layer, rows [heads, len, head_dim]."""

    def codes(self, index: int, num_layers: int) -> bool:
        """Whether layer `index` of `num_layers` compressed layers is coded, and not stored as it is."""
        return True

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        if not self.codes(layer.index, layer.num_layers):
            return Dense().store(layer, selection)
        keys = self.sequence("k", selection.of(layer.keys))
        values = self.sequence("v", selection.of(layer.values))
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return CodedLayer(keys, values, layer.n, kept)
