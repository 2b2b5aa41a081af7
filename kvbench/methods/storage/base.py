"""Storage: how the tokens that a method kept are held."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState


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
