"""Keys or values whose rows are restored a block at a time, and the layer cache that attends to them.

For stores that are no codes of single rows alone, or whose parts do not grow row by row: they have no room in which a
decoding step could be repeated, unlike a `CodedLayer`.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from kvbench.cache.coded.sequence import blocks
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.sequence import Sequence, SequenceLayer
from kvbench.ops import softmax
from kvbench.ops.softmax import Scaling


class BlockwiseSequence(Sequence):
    """Rows that can be restored from one to another.

    dtype   of the rows that came
    heads   that it has
    width   channels of a row
    """

    dtype: torch.dtype
    heads: int
    width: int

    @property
    @abstractmethod
    def length(self) -> int:
        """Rows held."""

    @abstractmethod
    def decoded(self, tokens: slice) -> Tensor:
        """Rows start … stop - 1, float32 [heads, t, head_dim]."""

    def logits(self, query: Tensor, scaling: float) -> Tensor:
        """Products of float32 query [heads, g, head_dim] with all rows, times `scaling`: [heads, g, len]."""
        unread = query.new_empty(())  # beta=0: nothing is added; one kernel for product and scaling
        parts = [
            torch.baddbmm(unread, query, self.decoded(block).mT, beta=0, alpha=scaling) for block in self.blocks(query)
        ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of all rows under float32 weights [heads, g, len]: [heads, g, head_dim]."""
        parts = [weights[..., block] @ self.decoded(block) for block in self.blocks(weights)]
        return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]

    def read(self) -> Tensor:
        limit = torch.finfo(self.dtype).max
        return self.decoded(slice(0, self.length)).clamp_(-limit, limit).to(self.dtype)

    def blocks(self, like: Tensor) -> list[slice]:
        """Ranges of rows to restore one after the other, on the device of `like`."""
        return blocks(self.length, self.heads * self.width, like.device)

    @property
    def share(self) -> float:
        return float(self.filled_bytes / max(self.heads * self.length * self.width * self.dtype.itemsize, 1))


class BlockwiseLayer(SequenceLayer):
    """Keys and values of the same tokens. No row is written back restored."""

    k: BlockwiseSequence
    v: BlockwiseSequence

    def __init__(self, keys: BlockwiseSequence, values: BlockwiseSequence, seen: int, kept: Kept):
        super().__init__(keys, values, keys.heads, seen, kept)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head, computed in float32 in 16-bit models too."""
        grouped = query.view(self.heads, -1, query.shape[-1]).float()
        logits = softmax.capped_(self.k.logits(grouped, softmax.plain(scaling)), scaling)
        weights = softmax.weights(logits, scaling)
        return self.v.weighted_sum(weights).to(query.dtype).view(query.shape)
