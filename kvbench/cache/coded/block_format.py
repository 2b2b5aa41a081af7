"""Keys or values in a block format."""

import torch
from torch import Tensor

from kvbench.cache.base import Growing
from kvbench.cache.coded.float8 import scale_of
from kvbench.cache.coded.sequence import CodedSequence
from kvbench.ops.formats import BlockFormat
from kvbench.ops.rotation import Rotation, rotation


class BlockSequence(CodedSequence):
    """Rows in a block format, in which the channels of a block share a scale; rows may be rotated first.

    If the format needs a scale of all rows (`BlockFormat.largest`), it comes from a head's first rows: larger numbers
    of later rows are clipped.
    """

    def __init__(self, rows: Tensor, form: BlockFormat, rotated: Rotation | None = None, seed: int = 0):
        """rows [heads, len, head_dim]; rotated: the rotation of each row, with this `seed`; None: no rotation."""
        self.dtype, (self.heads, _, self.width), self.form = rows.dtype, rows.shape, form
        self.kind, self.seed = rotated, seed
        rows = self._rotated(rows)
        self.shared = None if form.largest is None else scale_of(rows, "head", form.largest)
        self.parts = [Growing(self._coded(rows))]

    def encoded(self, rows: Tensor) -> list[Tensor]:
        return [self._coded(self._rotated(rows))]

    def decoded(self, tokens: slice) -> Tensor:
        return self.form.decode(self.parts[0].buffer[:, tokens])

    def to_codes(self, rows: Tensor) -> Tensor:
        return self._rotated(rows if self.shared is None else rows * self.shared)

    def from_codes(self, rows: Tensor) -> Tensor:
        if self.kind is not None:
            rows = rows @ self._rotation(rows.device)
        return rows if self.shared is None else rows * self.shared

    def _rotated(self, rows: Tensor) -> Tensor:
        return rows if self.kind is None else rows.float() @ self._rotation(rows.device).T

    def _rotation(self, device: torch.device) -> Tensor:
        """The rotation, which all caches of a model share and no cache counts."""
        return rotation(self.kind, self.width, self.seed, device)

    def _coded(self, rows: Tensor) -> Tensor:
        return self.form.encode(rows if self.shared is None else rows / self.shared)
