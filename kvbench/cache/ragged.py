"""Ragged caches: each head keeps different tokens and a different number of them."""

from collections.abc import Sequence

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.packed import Packed
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.softmax import Scaling


class RaggedLayer(LayerCache):
    """The chosen tokens of each head, packed: keys (after RoPE) and values."""

    takes_blocks = True
    batches = True

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        chosen: Tensor,
        seen: int,
        kept: Kept,
        lengths: Sequence[int] | None = None,
    ):
        """keys, values [num_key_value_heads, n, head_dim].

        chosen, bool [heads, n]: the tokens that each head keeps, where heads is num_key_value_heads, or
        num_attention_heads where every query head stores its own copies. lengths: how many these are; None: one wait
        for the device.
        """
        super().__init__(seen, kept)
        self.packed = self.packed_from(keys, values, chosen, lengths)

    @staticmethod
    def packed_from(keys: Tensor, values: Tensor, chosen: Tensor, lengths: Sequence[int] | None) -> Packed:
        return Packed.chosen(keys, values, chosen, lengths=lengths)

    def tensors(self) -> list[Tensor]:
        return [] if self.packed_row else self.packed.tensors()

    def index_tables(self) -> list[Tensor]:
        tables = None if self.packed_row else self.packed.tables
        return [] if tables is None else [table for table in vars(tables).values() if table is not None]

    @property
    def filled_bytes(self) -> int:
        return (self.packed_row or self.packed.rows[0]).filled_bytes

    def pack(self) -> Packed:
        packed = self.packed
        del self.packed
        return packed

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.packed.append(keys, values)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self.packed.attend(query, scaling)


class UnionLayer(RaggedLayer):
    """Per KV head the union of its query heads' kept tokens, and one bit per query head and prompt token.

    The attention output equals that of the unfolded cache; each token of the union is stored once.
    """

    @staticmethod
    def packed_from(keys: Tensor, values: Tensor, chosen: Tensor, lengths: Sequence[int] | None) -> Packed:
        """chosen, bool [num_key_value_heads, group, n]: the tokens of each query head; lengths: sizes of the unions."""
        return Packed.chosen(keys, values, chosen.any(dim=1), chosen, lengths)
