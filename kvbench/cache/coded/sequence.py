"""Keys or values that are restored a block of tokens at a time: any store, and codes of single rows."""

from abc import abstractmethod

import torch
from torch import Tensor

from kvbench.cache.base import Growing, filled
from kvbench.cache.sequence import Sequence
from kvbench.ops.not_finite import clamp_to_range_

# Elements of keys or values decoded at a time: 1 MB of float32 fits in a CPU's cache; a GPU needs few launches.
CPU_ELEMENTS, GPU_ELEMENTS = 2**18, 2**26


def blocks(length: int, elements: int, device: torch.device) -> list[slice]:
    """Ranges of `length` tokens of `elements` elements each, to decode one after the other; at least one range."""
    step = max((CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS) // elements, 1)
    return [slice(start, min(start + step, length)) for start in range(0, max(length, 1), step)]


class BlockwiseSequence(Sequence):
    """Rows of which any range can be restored, in float32.

    dtype   dtype of the appended rows
    heads   number of heads
    width   channels of a row
    """

    dtype: torch.dtype
    heads: int
    width: int

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of rows."""

    @abstractmethod
    def decoded(self, tokens: slice) -> Tensor:
        """Rows start … stop - 1, float32 [heads, t, head_dim]."""

    def restored(self) -> Tensor:
        """All rows, float32 [heads, len, head_dim]."""
        return self.decoded(slice(0, self.length))

    def read(self) -> Tensor:
        return clamp_to_range_(self.restored(), self.dtype).to(self.dtype)

    def logits(self, query: Tensor, scaling: float, count: int) -> Tensor:
        """Products of float32 query [heads, g, head_dim] with `count` rows, times `scaling`: [heads, g, count].

        `count` may include reserved room after the last row.
        """
        unread = query.new_empty(())  # beta=0 ignores it; one kernel computes product and scaling
        parts = [
            torch.baddbmm(unread, query, self.decoded(block).mT, beta=0, alpha=scaling) for block in self.blocks(count)
        ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of the first rows under float32 weights [heads, g, count]: [heads, g, head_dim]."""
        parts = [weights[..., block] @ self.decoded(block) for block in self.blocks(weights.shape[-1])]
        return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]

    def blocks(self, count: int) -> list[slice]:
        """Ranges of `count` rows to restore one after the other."""
        return blocks(count, self.heads * self.width, self.tensors()[0].device)

    @property
    def share(self) -> float:
        return float(self.filled_bytes / max(self.heads * self.length * self.width * self.dtype.itemsize, 1))


class CodedSequence(BlockwiseSequence):
    """Rows held as codes: row i is M(scale_i · c_i) with decoded codes c_i, a scale per token and a fixed linear map M.

    Attention is computed in the space of the codes: the transpose of M is applied once to a query, M once to a weighted
    sum of rows, and scales multiply logits and weights.

    parts   tensors with an entry for each row: codes first
    shared  a tensor for all rows
    """

    parts: list[Growing]
    shared: Tensor | None = None

    @property
    def length(self) -> int:
        return int(self.parts[0].length)

    @abstractmethod
    def encoded(self, rows: Tensor) -> list[Tensor]:
        """The new rows of `parts` for rows [heads, t, head_dim]: [heads, t, …] each, of the part's or a wider dtype."""

    @abstractmethod
    def decoded(self, tokens: slice) -> Tensor:
        """The decoded codes c of these tokens, or of room, float32 [heads, t, head_dim]."""

    def scale(self, count: int) -> Tensor | None:
        """The scales of the first `count` tokens, [heads, count]; None: all are 1."""
        return None

    def append(self, rows: Tensor) -> None:
        for store, part in zip(self.parts, self.encoded(rows), strict=True):
            store.append(part)

    def put(self, rows: Tensor, place: Tensor) -> None:
        """Write rows [heads, 1, head_dim] to `place`: see `Growing.put`."""
        for store, part in zip(self.parts, self.encoded(rows), strict=True):
            store.put(part, place)

    def tensors(self) -> list[Tensor]:
        stored = [part.buffer for part in self.parts]
        return stored if self.shared is None else [*stored, self.shared]

    def float32_tensors(self) -> list[Tensor]:
        """All tensors: none has the model's dtype, except by chance."""
        return self.tensors()

    @property
    def filled_bytes(self) -> int:
        return filled(*self.parts, self.shared)

    def to_codes(self, rows: Tensor) -> Tensor:
        """The transpose of M applied to float32 rows [heads, t, head_dim]."""
        return rows

    def from_codes(self, rows: Tensor) -> Tensor:
        """M applied to float32 rows [heads, t, head_dim]."""
        return rows

    def logits(self, query: Tensor, scaling: float, count: int) -> Tensor:
        logits, scale = super().logits(self.to_codes(query), scaling, count), self.scale(count)
        return logits if scale is None else logits.mul_(scale[:, None])

    def weighted_sum(self, weights: Tensor) -> Tensor:
        scale = self.scale(weights.shape[-1])
        return self.from_codes(super().weighted_sum(weights if scale is None else weights * scale[:, None]))

    def restored(self) -> Tensor:
        rows, scale = super().restored(), self.scale(self.length)
        return self.from_codes(rows if scale is None else rows * scale[..., None])
