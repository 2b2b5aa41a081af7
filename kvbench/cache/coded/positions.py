"""Positions of stored keys, to undo and redo their rotation."""

import torch
from torch import Tensor

from kvbench.ops.rope import Rope


class KeyPositions:
    """The positions of `length` kept tokens, and of the tokens that follow from position `seen` on.

    stored   [1 or heads, length] if tokens were dropped, in 16 bits for up to 32,768 tokens; otherwise empty.
    """

    def __init__(self, rope: Rope, indices: Tensor | None, length: int, seen: int, device: torch.device):
        """indices [1 or heads, length]: the positions; None: 0, 1, …"""
        self.rope, self.shift = rope, seen - length
        narrow = torch.int16 if seen <= 2**15 else torch.int32
        none = torch.empty(1, 0, dtype=narrow, device=device)
        self.stored = none if indices is None else indices.to(narrow)

    def undo(self, rows: Tensor, start: int) -> Tensor:
        """Float32 keys [heads, t, head_dim] of tokens start, … before RoPE."""
        return self._rotated(rows, -self.between(start, start + rows.shape[1]))

    def redo(self, rows: Tensor, start: int) -> Tensor:
        """The inverse of `undo`."""
        return self._rotated(rows, self.between(start, start + rows.shape[1]))

    def between(self, start: int, stop: int) -> Tensor:
        """Positions of the tokens from `start` up to `stop`, int64 [1 or heads, t]."""
        kept = self.stored[:, start:stop].long()
        later = torch.arange(start + kept.shape[1], stop, device=kept.device) + self.shift
        return torch.cat([kept, later.expand(len(kept), -1)], dim=1)

    def _rotated(self, rows: Tensor, positions: Tensor) -> Tensor:
        if len(positions) == 1:
            return self.rope.rotate(rows, positions[0])
        return self.rope.rotate(rows.flatten(0, 1)[None], positions.flatten())[0].unflatten(0, rows.shape[:2])
