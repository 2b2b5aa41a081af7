"""Storage: how the kept tokens are held."""

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
    """The sizes of a layer that a record states."""

    tokens: int | None  # per head; None if heads keep different numbers
    heads: int  # heads that store keys and values, both of `head_dim` channels
    head_dim: int
    index: int  # index of the layer, from the lowest, among the `num_layers` compressed layers
    num_layers: int


class Storage(Stated, ABC):
    """Turns a layer and the tokens selected from it into a layer cache: one class with `store` and `least_share`.

    joint           it holds several layers together: it implements `store_all`, which the method must call, and its
                    `store` raises UserError.
    groups_layers   it stores several layers faster together than one by one, with the same result.
    takes_ragged    it can hold heads of different lengths.
    reads_dropped   `store` reads keys or values of tokens that are not selected, which a cascade has dropped by then.
    batches         `LayerCache.batches` of its layer caches for a prompt longer than the tokens that stay raw.
    needs           the observations that `store` reads; a method that takes a storage adds them to its own.
    """

    joint: ClassVar[bool] = False
    groups_layers: ClassVar[bool] = False
    takes_ragged: ClassVar[bool] = False
    reads_dropped: ClassVar[bool] = False
    batches: ClassVar[bool] = False

    @cached_property
    def needs(self) -> Needs:
        return Needs()

    @abstractmethod
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        """A cache of exactly the selected tokens of `layer`.

        `selection.of(layer.keys)` gives their keys [heads, k, head_dim] if every head keeps k tokens. A ragged
        selection has the mask `selection.chosen` instead; only `takes_ragged` storages get one. `selection.kept(layer)`
        is the cache's `kept`. The cache copies the tensors that it keeps, because `layer` is shared by all settings,
        and lists each of them in `tensors()`.
        """

    @abstractmethod
    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """A lower bound of a kept token's bytes, as a share of the bytes of its uncompressed keys and values.

        element_bytes: bytes of an uncompressed element. Without a `layer` the bound holds for any layer of any model.
        `kvbench verify` reports records that claim less, so the bound must never exceed the bytes that `store` takes:
        it excludes bytes that depend on the values of keys and values, and is 0 if there are no other bytes.
        """

    @property
    def unfolds(self) -> bool:
        """Whether each query head stores a copy of its tokens if query heads select tokens separately."""
        return True

    @property
    def counts_groups(self) -> bool:
        """Whether `kept` counts a token once for all query heads of its group, of which each selects by itself."""
        return False

    def store_all(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[LayerCache]:
        """The caches of all layers, lowest first."""
        return [self.store(layer, selection) for layer, selection in zip(layers, selections, strict=True)]


def coded_share(key_bits: float, value_bits: float, element_bytes: int, layer: KeptLayer | None) -> float:
    """`least_share` of keys and values in these bits per element, or of uncompressed ones if that is less.

    Without a `layer` keys and values may differ in width, so that the smaller number of bits is the bound.
    """
    bits = min(key_bits, value_bits) if layer is None else (key_bits + value_bits) / 2
    return min(bits / (8 * element_bytes), 1.0)


def refuse_union(storage: Storage, method: str) -> None:
    """Refuse layout=union for a method whose query heads keep the same tokens: it would equal layout=unfolded."""
    if getattr(storage, "layout", None) == "union":
        raise UserError(
            f"layout=union stores once the tokens that query heads selected separately: it does not apply to {method}"
        )


def require_ragged(storage: Storage, method: str) -> None:
    """Refuse a storage that needs equally many tokens per head for a method whose heads keep different numbers."""
    if not storage.takes_ragged:
        raise UserError(
            f"{type(storage).__name__} holds the same number of tokens in every head of a layer: {method} keeps "
            "different numbers"
        )


def refuse_joint(storage: Storage, method: str) -> None:
    """Refuse a storage that holds several layers together for a method whose layers keep different tokens."""
    if storage.joint:
        raise UserError(
            f"{type(storage).__name__} needs the same tokens in every layer: {method} keeps different tokens"
        )


def check_same_tokens(index: int, selections: Sequence[Selection], what: str) -> None:
    """Refuse layers index and index + 1 if they kept different tokens; `what` begins with the storage's name."""
    lower, upper = (s.indices for s in selections)
    if lower is None and upper is None:
        return
    if lower is None or upper is None or lower.shape != upper.shape or not torch.equal(lower, upper.to(lower.device)):
        raise UserError(
            f"layers {index} and {index + 1} kept different tokens: {what} the same token in the next layer, so it "
            "needs a method that keeps the same tokens in both"
        )
