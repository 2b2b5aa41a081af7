"""MiniCache's store: directions that two layers share, and what each layer has of its own."""

import torch
from torch import Tensor

from kvbench.cache.sequence import Sequence
from kvbench.cache.union import unpack_bits


class SharedDirections:
    """One unit vector per merged token for both layers of a pair, and which tokens were not merged.

    `directions` holds the merged tokens [heads, n - k, head_dim] in order; `bits` [heads, ceil(n / 8)] has a
    bit set for each of the k tokens per head that both layers kept as they were.
    """

    def __init__(self, directions: Sequence, bits: Tensor, n: int):
        self.directions, self.bits, self.n = directions, bits, n

    def restore(self, magnitudes: Tensor, retained: Tensor) -> Tensor:
        """One layer's rows [heads, n, head_dim] from its magnitudes [heads, n - k] and its k unmerged rows."""
        merged = self.directions.read().float() * magnitudes[..., None].float()
        unmerged = unpack_bits(self.bits, self.n)[..., None]  # [heads, n, 1]
        rows = retained.new_empty(retained.shape[0], self.n, retained.shape[2])
        rows.masked_scatter_(~unmerged, merged.to(rows.dtype))
        return rows.masked_scatter_(unmerged, retained)

    def tensors(self) -> list[Tensor]:
        return [*self.directions.tensors(), self.bits]


class MergedSequence(Sequence):
    """One layer's keys or values: |x| times the shared direction, its unmerged tokens, and new ones in `tail`."""

    def __init__(self, shared: SharedDirections, owner: bool, magnitudes: Tensor, retained: Sequence, tail: Sequence):
        """`owner` is the one layer of the two that lists the shared tensors as its own."""
        self.shared, self.owner = shared, owner
        self.magnitudes, self.retained, self.tail = magnitudes, retained, tail

    def append(self, rows: Tensor) -> None:
        self.tail.append(rows)

    def read(self) -> Tensor:
        prompt = self.shared.restore(self.magnitudes, self.retained.read())
        return torch.cat([prompt, self.tail.read()], dim=1)

    def tensors(self) -> list[Tensor]:
        own = [self.magnitudes, *self.retained.tensors(), *self.tail.tensors()]
        return self.shared.tensors() + own if self.owner else own
