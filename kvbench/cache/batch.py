"""Several sequences decoding as one batch, each over a cache of its own kind and size."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.base import AttendingLayer, LayerCache


class BatchLayer(AttendingLayer):
    """One layer's caches, one for each sequence. The model's weights are read once for all of them.

    All sequences stand at the same position; what each stored of the tokens before is its own affair.
    """

    def __init__(self, rows: Sequence[LayerCache]):
        super().__init__()
        self.rows = list(rows)

    def append(self, keys: Tensor, values: Tensor) -> None:
        for row, key, value in zip(self.rows, keys.split(1), values.split(1), strict=True):
            row.update(key, value)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        return torch.cat([row.attend(q, scaling) for row, q in zip(self.rows, query.split(1), strict=True)])

    def get_seq_length(self) -> int:
        return self.rows[0].get_seq_length()

    @property
    def takes_blocks(self) -> bool:
        return all(row.takes_blocks for row in self.rows)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these sequences only."""
        self.rows = [self.rows[row] for row in rows]
