"""Storage: how the tokens that a method kept are held."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.union import UnionLayer
from kvbench.methods.base import choice
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState
from kvbench.ratio import Kept


class Storage(ABC):
    """Turns a layer and the tokens selected from it into a layer cache."""

    @abstractmethod
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        """Hold exactly the selected tokens of `layer`."""


@dataclass
class Dense(Storage):
    """Keys and values as they are.

    `layout` matters where query heads select for themselves. unfolded: a copy of K and V per query head,
    g times the bytes per token, as SnapKV's and PyramidKV's code store it. union: every token that any head
    of a group kept, once, with a bit per head; the same outputs.
    """

    layout: str = "unfolded"

    def __post_init__(self):
        choice("layout", self.layout, ("unfolded", "union"))

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        kept = Kept.tokens(selection.nominal, selection.count(layer), layer.n, selection.heads(layer))
        if self.layout == "union" and selection.heads(layer) > layer.num_key_value_heads:
            return UnionLayer(layer.keys, layer.values, selection.indices, layer.n, kept)
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        return DenseLayer(keys, values, layer.n, kept)
