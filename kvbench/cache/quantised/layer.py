"""Layer caches that attend to quantised keys and values, alone or as one of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvbench.cache.pack import Pack, PackRow
from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedValues
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.sequence import SequenceLayer
from kvbench.ops.quantised_attention import Stored, quantised_attention
from kvbench.ops.ring_append import ring_append
from kvbench.ops.softmax import Scaling, of_rows


def attention(
    query: Tensor, keys: QuantisedKeys, values: QuantisedValues, lengths: Tensor, longest: int, scaling: Scaling
) -> Tensor:
    """Of one query per head, [1, num_attention_heads, 1, head_dim]. Reads the codes and restores nothing in memory.

    lengths, int32 [heads]: how many tokens there are, at most `longest`.
    """
    k, v = (Stored(*each.stored, each.quantiser.bits) for each in (keys, values))
    return quantised_attention(query, k, v, lengths, longest, keys.limit, keys.quantiser.group, scaling)


@dataclass
class QuantisedRow(PackRow):
    """What one cache has of quantised rows."""

    read_bytes: int = 0


class QuantisedRows(Pack[QuantisedRow]):
    """Quantised keys and values of the same tokens, of the heads of one cache or of several that are equally long.

    `lengths` has their number of tokens on the device, where attention looks which of them are codes: with room for the
    next tokens, all tensors stay where they are until a block of rows is quantised, and then, too.
    """

    takes_blocks = False

    def __init__(self, keys: QuantisedKeys, values: QuantisedValues, rows: Sequence[QuantisedRow]):
        """The heads of each of `rows`, one row after the other."""
        self.k, self.v, self.rows = keys, values, list(rows)
        self.room = 0
        self._count_tokens()

    def joins(self, other: Pack[Any]) -> bool:
        return isinstance(other, QuantisedRows) and (self.k.kind, self.v.kind) == (other.k.kind, other.v.kind)

    @classmethod
    def joined(cls, parts: Sequence["QuantisedRows"], room: int) -> "QuantisedRows":
        """Without room, as in a cache alone."""
        if len(parts) == 1:
            return parts[0]
        keys = type(parts[0].k).joined([part.k for part in parts])
        values = type(parts[0].v).joined([part.v for part in parts])
        return cls(keys, values, [row for part in parts for row in part.rows])

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
        """A full block of keys is quantised before attention, so that Python appends the last one."""
        return min(self.room, self.k.ahead)

    def make_way(self) -> None:
        """Values are quantised before the next one takes their place."""
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
        own = of_rows(scaling, len(self.rows))
        return attention(heads, self.k, self.v, self.lengths, longest, own).view_as(query)

    def keep(self, rows: Sequence[int]) -> None:
        count = self.k.heads // len(self.rows)
        heads = torch.tensor([row * count + head for row in rows for head in range(count)])
        for store in (self.k, self.v):
            store.keep(heads.to(store.ring.buffer.device))
        self.rows = [self.rows[row] for row in rows]
        self.moves += 1
        self._count_tokens()

    def tensors(self) -> list[Tensor]:
        return self.k.tensors() + self.v.tensors()

    def _count_tokens(self) -> None:
        heads, device = self.k.heads, self.k.ring.buffer.device
        self.lengths = torch.full((heads,), self.k.length, dtype=torch.int32, device=device)
        self._count_bytes()

    def _count_bytes(self) -> None:
        """All rows hold as much."""
        held = sum(tensor.nbytes for tensor in self.tensors())
        filled, read = self.k.filled_bytes + self.v.filled_bytes, self.k.read_bytes + self.v.read_bytes
        for row in self.rows:
            row.nbytes, row.filled_bytes, row.read_bytes = (x // len(self.rows) for x in (held, filled, read))


class QuantisedLayer(SequenceLayer):
    """Quantised keys and values of the same tokens."""

    k: QuantisedKeys
    v: QuantisedValues
    packed_row: QuantisedRow | None

    def __init__(self, keys: QuantisedKeys, values: QuantisedValues, seen: int, kept: Kept):
        super().__init__(keys, values, keys.heads, seen, kept)

    @property
    def read_bytes(self) -> int:
        return self.packed_row.read_bytes if self.packed_row else super().read_bytes

    def pack(self) -> QuantisedRows | None:
        rows = QuantisedRows(self.k, self.v, [QuantisedRow()])
        del self.k, self.v
        return rows

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        lengths = torch.full((self.k.heads,), self.k.length, dtype=torch.int32, device=query.device)
        return attention(query, self.k, self.v, lengths, self.k.length, scaling)
