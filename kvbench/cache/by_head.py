"""A layer whose heads are caches of their own, each with its number of tokens."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.softmax import Scaling, of_heads

Attend = Callable[[Tensor, Scaling], Tensor]


class ByHeadLayer(LayerCache):
    """One cache of one head for each KV head, or for each query head where these select for themselves.

    For storages whose heads must be equally long: heads attend one after the other, so a GPU launches as many kernels
    for each.
    """

    def __init__(self, heads: Sequence[LayerCache], seen: int, kept: Kept):
        super().__init__(seen, kept)
        self.heads = list(heads)

    def tensors(self) -> list[Tensor]:
        return [tensor for head in self.heads for tensor in head.tensors()]

    def index_tables(self) -> list[Tensor]:
        return [table for head in self.heads for table in head.index_tables()]

    def float32_tensors(self) -> list[Tensor]:
        return [tensor for head in self.heads for tensor in head.float32_tensors()]

    @property
    def filled_bytes(self) -> int:
        return sum(head.filled_bytes for head in self.heads)

    @property
    def read_bytes(self) -> int:
        return sum(head.read_bytes for head in self.heads)

    def append(self, keys: Tensor, values: Tensor) -> None:
        copies = len(self.heads) // keys.shape[1]
        for number, head in enumerate(self.heads):
            own = slice(number // copies, number // copies + 1)
            head.update(keys[:, own], values[:, own])

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self._of_heads(query, scaling, [head.attend for head in self.heads])

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self._of_heads(query, scaling, [head.reread for head in self.heads])

    def _of_heads(self, query: Tensor, scaling: Scaling, attends: Sequence[Attend]) -> Tensor:
        parts = query.chunk(len(self.heads), dim=1)
        size = parts[0].shape[1]
        own = [of_heads(scaling, slice(at, at + size)) for at in range(0, query.shape[1], size)]
        return torch.cat([attend(*each) for attend, *each in zip(attends, parts, own, strict=True)], dim=1)
