"""Layer caches that attend to quantised keys and values, of one sequence or of several."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.base import Row
from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedValues
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.rows import RowsLayer
from kvbench.cache.sequence import SequenceLayer
from kvbench.methods.kivi.quantised_attention import Stored, quantised_attention
from kvbench.methods.kivi.ring_append import ring_append
from kvbench.ops.softmax import Scaling, of_rows


def attention(
    query: Tensor, keys: QuantisedKeys, values: QuantisedValues, lengths: Tensor, longest: int, scaling: Scaling
) -> Tensor:
    """Attention of one query per head, [1, num_attention_heads, 1, head_dim], directly over codes.

    lengths, int32 [heads]: the number of tokens, at most `longest`.
    """
    k, v = (Stored(*sequence.stored, sequence.quantiser.bits) for sequence in (keys, values))
    return quantised_attention(query, k, v, lengths, longest, keys.limit, keys.quantiser.group, scaling)


class QuantisedRow(Row):
    """The bytes of one sequence in a layer of quantised keys and values."""

    read: int = 0

    @property
    def read_bytes(self) -> int:
        return self.read


class QuantisedLayer(SequenceLayer, RowsLayer):
    """Quantised keys and values of the heads of one sequence, or of several sequences of equal length.

    `lengths` has the number of tokens on the device; attention computes from it which tokens are codes. With room for
    the next tokens no tensor moves, even when a block of rows is quantised.
    """

    k: QuantisedKeys
    v: QuantisedValues
    rows: list[QuantisedRow]

    def __init__(
        self,
        keys: QuantisedKeys,
        values: QuantisedValues,
        seen: int,
        kept: Kept | None,
        rows: Sequence[QuantisedRow] = (),
    ):
        """keys and values hold the heads of `rows`, one row after the other; without rows, of a single sequence."""
        super().__init__(keys, values, keys.heads, seen, kept)
        self.rows = list(rows)
        self._count_tokens()

    def index_tables(self) -> list[Tensor]:
        return [self.lengths]

    def joins(self, other: RowsLayer) -> bool:
        return isinstance(other, QuantisedLayer) and (self.k.kind, self.v.kind) == (other.k.kind, other.v.kind)

    def joined(self, others: Sequence["QuantisedLayer"], room: int) -> "QuantisedLayer":
        """The joined cache has no room, like a cache of a single sequence."""
        if not others:
            return self
        parts = [self, *others]
        keys = type(self.k).joined([part.k for part in parts])
        values = type(self.v).joined([part.v for part in parts])
        return QuantisedLayer(keys, values, self.seen, None, [QuantisedRow(part.kept) for part in parts])

    def append(self, keys: Tensor, values: Tensor) -> None:
        for token in zip(keys.split(1, dim=2), values.split(1, dim=2), strict=True):
            self.make_way()
            self.write(*token)
            self.k.came()
            self.v.came()
            self.room = max(self.room - 1, 0)
        self._count_bytes()

    def write(self, keys: Tensor, values: Tensor) -> None:
        ring_append(self.k.ring.buffer, self.v.ring.buffer, self.lengths, keys, values, self.k.limit)

    @property
    def ahead(self) -> int:
        """Python appends the last token of a block of keys, because a full block is quantised before attention."""
        return min(self.room, self.k.ahead)

    def make_way(self) -> None:
        """Quantise a full block before the next token overwrites its first row."""
        self.k.make_way()
        self.v.make_way()

    def advance(self, tokens: int) -> None:
        self.k.length += tokens
        self.v.length += tokens
        self.room -= tokens
        self._count_bytes()

    def make_room(self, tokens: int) -> None:
        if tokens > self.room:
            self.room = tokens
            self.k.reserve(tokens)
            self.v.reserve(tokens)
            self.moves += 1
            self._count_bytes()

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        heads = query.reshape(1, -1, *query.shape[2:])
        longest = self.k.length + self.room
        of_all_rows = of_rows(scaling, self._sequences)
        out = attention(heads, self.k, self.v, self.lengths, longest, of_all_rows)
        return out.view(*query.shape[:-1], -1)

    def keep(self, rows: Sequence[int]) -> None:
        count = self.k.heads // self._sequences
        heads = torch.tensor([row * count + head for row in rows for head in range(count)])
        for store in (self.k, self.v):
            store.keep(heads.to(store.ring.buffer.device))
        self.rows = [self.rows[row] for row in rows]
        self.moves += 1
        self._count_tokens()

    @property
    def _sequences(self) -> int:
        return max(len(self.rows), 1)

    def _count_tokens(self) -> None:
        heads, device = self.k.heads, self.k.ring.buffer.device
        self.lengths = torch.full((heads,), self.k.length, dtype=torch.int32, device=device)
        self._count_bytes()

    def _count_bytes(self) -> None:
        """Divide the bytes equally: all rows are equally long."""
        if self.rows:
            totals = self.nbytes, self.filled_bytes, self.read_bytes
            held, filled, read = (total // len(self.rows) for total in totals)
            for row in self.rows:
                row.held, row.filled, row.read = held, filled, read
