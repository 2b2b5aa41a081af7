"""Storage: how the tokens that a method keeps are held."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.facts import Stated
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState, Needs


@dataclass(frozen=True)
class KeptLayer:
    """What a record says of a layer, without its keys and values."""

    tokens: int | None  # that each head keeps; None where heads keep different numbers
    heads: int  # that store keys and values, both of `head_dim` channels
    head_dim: int
    index: int  # of the layer, from the lowest, among the `num_layers` that are compressed
    num_layers: int


class Storage(Stated, ABC):
    """Turns a layer and the tokens selected from it into a layer cache: one class with `store` and `least_share`.

    `joint` storages hold several layers together: they implement `store_all`, which the method must call, and
    their `store` raises UserError. `groups_layers` storages store several layers faster than one by one, with the same
    outcome. `takes_ragged` storages hold heads of different lengths, too. `batches` is that
    of the layer caches (`LayerCache.batches`), wherever a prompt outgrows what stays raw. `needs` are the
    observations that `store` reads; a method that takes a storage adds them to its own.
    """

    joint: ClassVar[bool] = False
    groups_layers: ClassVar[bool] = False
    takes_ragged: ClassVar[bool] = False
    batches: ClassVar[bool] = False

    @cached_property
    def needs(self) -> Needs:
        return Needs()

    @abstractmethod
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        """A cache of exactly the selected tokens of `layer`.

        `selection.of(layer.keys)` gives their keys [heads, k, head_dim], where every head keeps k tokens; only
        `takes_ragged` storages are given a ragged one, which has a mask, `selection.chosen`, instead.
        `selection.kept(layer)` is the cache's `kept`.
        The cache copies what it keeps and lists every tensor in `tensors()`: `layer` is shared by all settings.
        """

    @abstractmethod
    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """The least bytes that a kept token takes, over those of its keys and values as they are.

        Elements of these have `element_bytes`; without a `layer`, of any layer of any model. `kvbench verify` finds
        records wrong that claim less, so it is never above what `store` takes: what depends on the numbers themselves
        is left out, and 0 says that nothing else is stored.
        """

    @property
    def unfolds(self) -> bool:
        """Whether query heads that select for themselves have copies of their own of what they keep."""
        return True

    def store_all(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[LayerCache]:
        """The caches of all layers, lowest first."""
        return [self.store(layer, selection) for layer, selection in zip(layers, selections, strict=True)]


def coded_share(key_bits: float, value_bits: float, element_bytes: int, layer: KeptLayer | None) -> float:
    """`least_share` of elements in so many bits each, or as they are where that is less; of a layer that is not known
    keys may be as narrow, or values, as it takes."""
    bits = min(key_bits, value_bits) if layer is None else (key_bits + value_bits) / 2
    return min(bits / (8 * element_bytes), 1.0)


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
