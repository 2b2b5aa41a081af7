"""Several sequences decoding as one batch, with caches of different kinds and sizes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.base import AttendingLayer, Growing, LayerCache
from kvbench.cache.dense import DenseLayer


class BatchLayer(AttendingLayer):
    """The caches of one layer, one per sequence, so that a forward pass reads the model's weights once for all.

    All sequences have seen the same number of tokens; each may store any of them.
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
        """Keep these sequences and drop the others."""
        self.rows = [self.rows[row] for row in rows]


class StackedLayer(DenseLayer):
    """Dense caches of equal shape as one tensor [rows, heads, len, head_dim], with one attention call for all rows."""

    def __init__(self, rows: Sequence[DenseLayer]):
        """Copies the tensors of `rows`; delete the rows to free theirs."""
        LayerCache.__init__(self, rows[0].seen, rows[0].kept)
        self.k = Growing(torch.cat([row.k.view for row in rows]))
        self.v = Growing(torch.cat([row.v.view for row in rows]))


def joined(rows: Sequence[LayerCache]) -> AttendingLayer:
    """The fastest layer over the caches of a batch whose sequences all end at the same step.

    Dense caches of equal shape are stacked, others attend row by row, a single cache is returned as it is. Only the
    returned layer is updated, not the rows.
    """
    if len(rows) == 1:
        return rows[0]
    shapes = {row.k.view.shape if type(row) is DenseLayer else None for row in rows}
    return BatchLayer(rows) if None in shapes or len(shapes) > 1 else StackedLayer(rows)
