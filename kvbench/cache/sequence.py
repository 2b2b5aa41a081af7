"""Sequences: stores of keys or values that can be read back as rows, and the layer cache of two sequences."""

from abc import ABC, abstractmethod

from torch import Tensor

from kvbench.cache.base import DenseRows, Growing, LayerCache, unfolded
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.attention import dense_attention
from kvbench.ops.softmax import Scaling


class Sequence(ABC):
    """Rows [heads, len, head_dim] in order of position; further rows can be appended."""

    @property
    def share(self) -> float:
        """Analytic size of the stored rows, relative to raw rows."""
        return 1.0

    @abstractmethod
    def append(self, rows: Tensor) -> None:
        """Append rows [heads, t, head_dim]."""

    @abstractmethod
    def read(self) -> Tensor:
        """All rows [heads, len, head_dim] in the model's dtype, in the form that attention uses."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every stored tensor."""

    def float32_tensors(self) -> list[Tensor]:
        """As in `StoredLayer`."""
        return []

    @property
    def filled_bytes(self) -> int:
        """Bytes of `tensors` without room for further rows. A sequence with room overrides this."""
        return sum(tensor.nbytes for tensor in self.tensors())

    @property
    def read_bytes(self) -> int:
        """Bytes that one `read` reads."""
        return self.filled_bytes


class RawSequence(Sequence):
    """Rows stored unchanged."""

    def __init__(self, rows: Tensor):
        self.rows = Growing(rows)

    def append(self, rows: Tensor) -> None:
        self.rows.append(rows)

    def read(self) -> Tensor:
        return self.rows.view

    def tensors(self) -> list[Tensor]:
        return [self.rows.buffer]

    @property
    def filled_bytes(self) -> int:
        return self.rows.filled_bytes


class SequenceLayer(LayerCache):
    """A layer of two sequences. Attention reads both in full, so one layer at a time is decompressed."""

    def __init__(self, keys: Sequence, values: Sequence, heads: int, seen: int, kept: Kept | None):
        """heads: num_key_value_heads, or num_attention_heads if GQA groups are unfolded."""
        super().__init__(seen, kept)
        self.k, self.v, self.heads = keys, values, heads

    def tensors(self) -> list[Tensor]:
        return self.k.tensors() + self.v.tensors()

    def float32_tensors(self) -> list[Tensor]:
        return self.k.float32_tensors() + self.v.float32_tensors()

    @property
    def filled_bytes(self) -> int:
        return self.k.filled_bytes + self.v.filled_bytes

    @property
    def read_bytes(self) -> int:
        return self.k.read_bytes + self.v.read_bytes

    def as_dense(self) -> DenseRows | None:
        return DenseRows(self.k.read()[None], self.v.read()[None])

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.k.append(unfolded(keys, self.heads)[0])
        self.v.append(unfolded(values, self.heads)[0])

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return dense_attention(query, self.k.read()[None], self.v.read()[None], scaling)
