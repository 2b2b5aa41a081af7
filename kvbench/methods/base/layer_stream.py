"""Compression of the layers of one prefill as they arrive, so that few of them are held whole (`memory=stream`)."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.prefill import LayerState


class LayerStream(ABC):
    """Takes the layers of one prompt, lowest first, and has their caches in `caches` after `finish`."""

    def __init__(self) -> None:
        self.caches: list[LayerCache] = []

    @abstractmethod
    def take(self, layer: LayerState) -> None:
        """Compress the next layer. Afterwards only `tensors()` still holds any of its keys and values."""

    def finish(self, count: Callable[[LayerState], object]) -> None:  # noqa: B027 - most subclasses have no work left
        """Make the caches that need all layers.

        `count(layer)` is called whenever a whole layer is in memory in addition to `tensors()`.
        """

    def tensors(self) -> list[Tensor]:
        """The tensors held for the layers so far."""
        return [tensor for cache in self.caches for tensor in cache.tensors()]


class LayerByLayer(LayerStream):
    """Makes each cache from one layer alone: `compress(layer, index)`."""

    def __init__(self, compress: Callable[[LayerState, int], LayerCache]) -> None:
        super().__init__()
        self.compress = compress

    def take(self, layer: LayerState) -> None:
        self.caches.append(self.compress(layer, len(self.caches)))
