"""Storage: how the tokens that a method keeps are held."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import torch

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.ragged_selection import RaggedSelection
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState, Needs
from kvbench.utils.versions import Versioned


class Storage(Versioned, ABC):
    """Turns a layer and the tokens selected from it into a layer cache. A new storage is one class with `store`.

    `joint` storages hold several layers together: they implement `store_all`, which the method must call, and
    their `store` raises UserError. `takes_ragged` storages hold heads of different lengths, too. `needs` are the
    observations that `store` reads; a method that takes a storage adds them to its own.
    """

    joint: ClassVar[bool] = False
    takes_ragged: ClassVar[bool] = False

    @cached_property
    def needs(self) -> Needs:
        return Needs()

    @abstractmethod
    def store(self, layer: LayerState, selection: Selection | RaggedSelection) -> LayerCache:
        """A cache of exactly the selected tokens of `layer`.

        `selection.of(layer.keys)` gives their keys [heads, k, head_dim], where every head keeps k tokens; only
        `takes_ragged` storages are given a RaggedSelection, which has `chosen` instead. `selection.kept(layer)` is the
        cache's `kept`.
        The cache copies what it keeps and lists every tensor in `tensors()`: `layer` is shared by all settings.
        """

    def store_all(
        self, layers: Sequence[LayerState], selections: Sequence[Selection | RaggedSelection]
    ) -> list[LayerCache]:
        """The caches of all layers, lowest first."""
        return [self.store(layer, selection) for layer, selection in zip(layers, selections, strict=True)]


def alike(selection: Selection | RaggedSelection) -> Selection:
    """A selection of equally many tokens per head: what storages are given that are not `takes_ragged`."""
    assert isinstance(selection, Selection), "require_ragged() refuses the others"
    return selection


def refuse_union(storage: Storage, method: str) -> None:
    """Refuse layout=union for a method whose query heads keep the same tokens: it would store what unfolded does."""
    if getattr(storage, "layout", None) == "union":
        raise UserError(
            f"layout=union stores once the tokens that query heads selected separately: it does not apply to {method}"
        )


def require_ragged(storage: Storage, method: str) -> None:
    """Refuse a storage of equally many tokens per head for a method whose heads keep different numbers."""
    if not storage.takes_ragged:
        raise UserError(
            f"{type(storage).__name__} holds the same number of tokens in every head of a layer: {method} keeps "
            "different numbers"
        )


def refuse_joint(storage: Storage, method: str) -> None:
    """Refuse a storage of several layers together for a method whose layers keep different tokens."""
    if storage.joint:
        raise UserError(f"{type(storage).__name__} needs the same tokens in every layer: {method} keeps different ones")


def check_same_tokens(index: int, selections: Sequence[Selection], what: str) -> None:
    """Refuse layers index and index + 1 where they kept different tokens; `what` begins with the storage's name."""
    lower, upper = (s.indices for s in selections)
    if lower is None and upper is None:
        return
    if lower is None or upper is None or lower.shape != upper.shape or not torch.equal(lower, upper.to(lower.device)):
        raise UserError(
            f"layers {index} and {index + 1} kept different tokens: {what} the same one a layer above, so it needs a "
            "method that keeps the same tokens in both"
        )
