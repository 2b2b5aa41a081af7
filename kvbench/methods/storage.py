"""Storage: how the tokens that a method kept are held."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.sequence import RawSequence
from kvbench.cache.union import UnionLayer
from kvbench.errors import UserError
from kvbench.methods.base import choice
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState
from kvbench.ratio import Kept


class Storage(ABC):
    """Turns a layer and the tokens selected from it into a layer cache.

    A `joint` storage holds layers together: only `store_all` works, and the method must call it.
    """

    joint = False

    @abstractmethod
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        """Hold exactly the selected tokens of `layer`."""

    def store_all(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[LayerCache]:
        """All layers of a model, the lowest first."""
        return [self.store(layer, selection) for layer, selection in zip(layers, selections, strict=True)]


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
        count, heads = selection.count(layer), selection.heads(layer)
        kept = Kept.tokens(selection.nominal, count, layer.n, heads, where=selection.where(layer))
        if self.layout == "union" and selection.heads(layer) > layer.num_key_value_heads:
            return UnionLayer(layer.keys, layer.values, selection.indices, layer.n, kept)
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        return DenseLayer(keys, values, layer.n, kept)

    def key_sequence(self, rows: Tensor, recent: bool = True) -> RawSequence:
        """Keys [heads, len, head_dim], whether they are the end of a text or not."""
        return RawSequence(rows)

    value_sequence = key_sequence


def refuse_union(storage: Storage, method: str) -> None:
    """For methods whose query heads keep the same tokens: the union of equal sets would silently be Dense."""
    if getattr(storage, "layout", None) == "union":
        raise UserError(
            f"layout=union stores once what query heads kept each for itself: it has no meaning with {method}"
        )


def refuse_joint(storage: Storage, method: str) -> None:
    """For methods whose layers keep tokens of their own: a storage of layers together has no meaning there."""
    if storage.joint:
        raise UserError(f"{type(storage).__name__} needs the same tokens in every layer: {method} keeps different ones")
