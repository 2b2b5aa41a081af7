"""Rows of a prompt as a product of two thin matrices."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.base import Growing, filled
from kvbench.cache.coded.positions import KeyPositions
from kvbench.cache.coded.sequence import BlockwiseSequence
from kvbench.cache.coded.transform import principal_axes


class LowRankSequence(BlockwiseSequence):
    """The prompt's rows as left · right, and later rows unchanged.

    left [groups, t, rank] may be shared with another layer, which then lists it. right [groups, rank, channels]: the
    channels of a group's heads, one head after the other.
    """

    def __init__(self, left: Tensor, right: Tensor, owner: bool, heads: int, positions: KeyPositions | None):
        """owner: whether this sequence lists and counts `left`; positions: of keys, whose product is before RoPE."""
        self.left, self.right, self.owner, self.heads, self.positions = left, right, owner, heads, positions
        self.dtype = right.dtype
        self.width = right.shape[0] * right.shape[2] // heads
        self.later = Growing(right.new_empty(heads, 0, self.width))

    @property
    def length(self) -> int:
        return int(self.left.shape[1] + self.later.length)

    def append(self, rows: Tensor) -> None:
        self.later.append(rows)

    def decoded(self, tokens: slice) -> Tensor:
        start, stop, _ = tokens.indices(self.length)
        coded = self.left.shape[1]
        groups = self.left[:, start:stop].float() @ self.right.float()  # [groups, t, channels of a group]
        rows = groups.unflatten(2, (-1, self.width)).transpose(1, 2).flatten(0, 1)
        if self.positions is not None:
            rows = self.positions.redo(rows, start)
        return torch.cat([rows, self.later.view[:, max(start - coded, 0) : max(stop - coded, 0)].float()], dim=1)

    def tensors(self) -> list[Tensor]:
        stored = [self.right, self.later.buffer, *([self.left] if self.owner else [])]
        return stored if self.positions is None else [*stored, self.positions.stored]

    @property
    def filled_bytes(self) -> int:
        nbytes = filled(self.right, self.later, self.left if self.owner else None)
        return nbytes + (0 if self.positions is None else self.positions.stored.nbytes)

    @property
    def read_bytes(self) -> int:
        return self.filled_bytes + (0 if self.owner else self.left.nbytes)


def thin_factors(vectors: Sequence[Tensor], share: float) -> tuple[Tensor, list[Tensor]]:
    """left [t, rank], and a right [rank, channels] for each of the float32 `vectors` [t, channels], whose products have
    the smallest squared error in total. The rank is a share of all channels, rounded down, at least 1.

    This is the truncated singular value decomposition, from the eigenvectors of the channels' products.
    """
    x = torch.cat(list(vectors), dim=1)
    axes = principal_axes(x).axes[:, : rank_of(share, x.shape[1], len(x))]
    return x @ axes, list(axes.T.split([part.shape[1] for part in vectors], dim=1))


def rank_of(share: float, channels: int, tokens: int) -> int:
    return min(max(int(share * channels + 1e-9), 1), max(tokens, 1))


def thin_share(share: float, channels: int, tokens: int) -> float:
    """The count of numbers in `thin_factors` over the count in the vectors."""
    rank = rank_of(share, channels, tokens)
    return rank / channels + rank / tokens
