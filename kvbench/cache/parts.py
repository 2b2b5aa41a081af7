"""A layer cache that consists of other caches and holds all their tensors."""

from collections.abc import Sequence

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept


class LayerOfParts(LayerCache):
    """A layer whose tokens or heads are in several caches."""

    def __init__(self, parts: Sequence[LayerCache], seen: int, kept: Kept):
        super().__init__(seen, kept)
        self.parts = list(parts)

    def tensors(self) -> list[Tensor]:
        return [tensor for part in self.parts for tensor in part.tensors()]

    def index_tables(self) -> list[Tensor]:
        return [table for part in self.parts for table in part.index_tables()]

    def float32_tensors(self) -> list[Tensor]:
        return [tensor for part in self.parts for tensor in part.float32_tensors()]

    @property
    def filled_bytes(self) -> int:
        return sum(part.filled_bytes for part in self.parts)

    @property
    def read_bytes(self) -> int:
        return sum(part.read_bytes for part in self.parts)
