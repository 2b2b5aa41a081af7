"""Keys and values held as codes, and attention that decodes a block of tokens at a time."""

from abc import abstractmethod

import torch
from torch import Tensor

from kvbench.cache.sequence import Sequence, SequenceLayer
from kvbench.ops import softmax
from kvbench.ops.softmax import Scaling

# Elements of keys or values decoded at a time: 1 MB in float32 stays in a CPU's cache, a GPU has few launches.
CPU_ELEMENTS, GPU_ELEMENTS = 2**18, 2**26


def blocks(length: int, elements: int, device: torch.device) -> list[slice]:
    """Ranges of `length` tokens, of `elements` each, to turn into float32 one after the other: at least one."""
    step = max((CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS) // elements, 1)
    return [slice(start, start + step) for start in range(0, max(length, 1), step)]


class CodedSequence(Sequence):
    """Rows held as codes: row i is M(scale_i · c_i) with decoded codes c_i, a scale per token and a fixed linear map M.

    Attention stays in the space of the codes: a query goes through the transpose of M once, a weighted sum of rows
    through M once, and scales multiply logits and weights.
    """

    dtype: torch.dtype  # of the rows that came

    @property
    @abstractmethod
    def length(self) -> int:
        """Rows held."""

    @abstractmethod
    def decoded(self, tokens: slice) -> Tensor:
        """c of these tokens, float32 [heads, t, head_dim]."""

    def scale(self) -> Tensor | None:
        """Scale of each token [heads, len]; None: 1."""
        return None

    def to_codes(self, rows: Tensor) -> Tensor:
        """The transpose of M applied to float32 rows [heads, t, head_dim]."""
        return rows

    def from_codes(self, rows: Tensor) -> Tensor:
        """M applied to float32 rows [heads, t, head_dim]."""
        return rows

    def logits(self, query: Tensor, scaling: float) -> Tensor:
        """Products of float32 query [heads, g, head_dim] with all rows, times `scaling`: [heads, g, len]."""
        query = self.to_codes(query)
        unread = query.new_empty(())  # beta=0: nothing is added; one kernel for product and scaling
        parts = [
            torch.baddbmm(unread, query, self.decoded(block).mT, beta=0, alpha=scaling) for block in self._blocks(query)
        ]
        logits = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        scale = self.scale()
        return logits if scale is None else logits.mul_(scale[:, None])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of all rows under float32 weights [heads, g, len]: [heads, g, head_dim]."""
        scale = self.scale()
        scaled = weights if scale is None else weights * scale[:, None]
        parts = [scaled[..., block] @ self.decoded(block) for block in self._blocks(weights)]
        return self.from_codes(torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0])

    def read(self) -> Tensor:
        rows, scale = self.decoded(slice(None)), self.scale()
        rows = rows if scale is None else rows * scale[..., None]
        limit = torch.finfo(self.dtype).max
        return self.from_codes(rows).clamp_(-limit, limit).to(self.dtype)

    def _blocks(self, like: Tensor) -> list[slice]:
        return blocks(self.length, len(like) * self.head_dim, like.device)

    @property
    @abstractmethod
    def head_dim(self) -> int:
        """Channels of a row."""


class CodedLayer(SequenceLayer):
    """Coded keys and values of the same tokens, quantised as they arrive. No row is written back decoded."""

    k: CodedSequence
    v: CodedSequence

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head, computed in float32 in 16-bit models too."""
        grouped = query.view(self.heads, -1, query.shape[-1]).float()
        logits = softmax.capped_(self.k.logits(grouped, softmax.plain(scaling)), scaling)
        weights = softmax.weights(logits, scaling)
        return self.v.weighted_sum(weights).to(query.dtype).view(query.shape)
