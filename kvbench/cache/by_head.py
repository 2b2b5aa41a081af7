"""A layer with a separate cache per head, each with its number of tokens."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kvbench.cache.parts import LayerOfParts
from kvbench.ops.softmax import Scaling, of_heads

Attend = Callable[[Tensor, Scaling], Tensor]


class ByHeadLayer(LayerOfParts):
    """One cache of one head for each KV head, or for each query head if query heads select tokens separately.

    It is for storages whose heads must be equally long. Heads attend one after the other, so a GPU launches all kernels
    once per head.
    """

    def append(self, keys: Tensor, values: Tensor) -> None:
        copies = len(self.parts) // keys.shape[1]
        for number, head in enumerate(self.parts):
            kv_head = slice(number // copies, number // copies + 1)
            head.take(keys[:, kv_head], values[:, kv_head])

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self._in_parts(query, scaling, [head.attend for head in self.parts])

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self._in_parts(query, scaling, [head.reread for head in self.parts])

    def _in_parts(self, query: Tensor, scaling: Scaling, attends: Sequence[Attend]) -> Tensor:
        """The outputs of the heads' caches, each for the head's queries."""
        queries = query.chunk(len(self.parts), dim=1)
        size = queries[0].shape[1]
        scalings = [of_heads(scaling, slice(at, at + size)) for at in range(0, query.shape[1], size)]
        return torch.cat([attend(*args) for attend, *args in zip(attends, queries, scalings, strict=True)], dim=1)
