"""Several sequences decoding as one batch, each over a cache of its own kind and size."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.base import AttendingLayer, Growing, LayerCache
from kvbench.cache.dense import DenseLayer


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

    def tensors(self) -> list[Tensor]:
        return [tensor for row in self.rows for tensor in row.tensors()]

    @property
    def takes_blocks(self) -> bool:
        return all(row.takes_blocks for row in self.rows)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these sequences only."""
        self.rows = [self.rows[row] for row in rows]


class StackedLayer(DenseLayer):
    """Dense caches of equal shape as one rectangle [rows, heads, len, head_dim]: one attention for all of them."""

    def __init__(self, rows: Sequence[DenseLayer]):
        """Copies the rows' tensors; drop the rows to free theirs."""
        LayerCache.__init__(self, rows[0].seen, rows[0].kept)
        self.k = Growing(torch.cat([row.k.view for row in rows]))
        self.v = Growing(torch.cat([row.v.view for row in rows]))


def joined(rows: Sequence[LayerCache]) -> AttendingLayer:
    """One layer over the caches of a batch whose sequences all end together: for the most speed.

    Dense caches of one shape are stacked, others answer row by row; a single cache is its own layer. What attends is
    the returned layer: the rows are not kept up to date.
    """
    if len(rows) == 1:
        return rows[0]
    shapes = {row.k.view.shape if type(row) is DenseLayer else None for row in rows}
    return BatchLayer(rows) if None in shapes or len(shapes) > 1 else StackedLayer(rows)
