"""Packed caches: keys and values of any number of heads and sequences, of different lengths, in one buffer.

A segment holds one stored head of one sequence: consecutive rows of the buffers, followed by room. Every segment grows
by the same tokens, so all of them have the same room.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.cache.base import BLOCK, Row
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.rows import RowsLayer
from kvbench.ops.packed_append import packed_append
from kvbench.ops.packed_attention import ALL, packed_attention
from kvbench.ops.segments import Segments, Visible
from kvbench.ops.softmax import Scaling


@dataclass
class Segment:
    """Place and size of one stored head at the last move."""

    start: int  # first row in the buffers
    length: int  # number of tokens
    masked: int = 0  # number of first tokens that have a bit for each query head of the group
    bits: int = 0  # first byte in the bits: [group, ceil(masked / 8)], the first token in the lowest bit
    bit_bytes: int = 0


class PackedRow(Row):
    """The segments of one sequence, in order of its stored heads."""

    def __init__(self, segments: Sequence[Segment], kept: Kept | None):
        super().__init__(kept)
        self.segments = list(segments)


@dataclass
class Tables:
    """The segments of all rows on the device, int32 [segments] each."""

    starts: Tensor  # [segments + 1], the last number is the capacity
    lengths: Tensor
    sources: Tensor  # each segment's row of new keys [rows · num_key_value_heads, t, head_dim]
    masked: Tensor
    bits: Tensor
    heads: Tensor | None = None  # [segments + 1]: each segment's first query head among the heads of all rows


class Packed(RowsLayer):
    """Keys and values [capacity, head_dim] of the segments of `rows`, and the bits of some segments, uint8 [bytes].

    A row stores num_key_value_heads or num_attention_heads segments.
    """

    takes_blocks = True
    batches = True
    takes_back = True
    rows: list[PackedRow]

    def __init__(self, keys: Tensor, values: Tensor, rows: Sequence[PackedRow], seen: int, bits: Tensor | None = None):
        """A cache without room: the segments fill the buffers."""
        super().__init__(seen, rows[0].kept if len(rows) == 1 else None)
        self.keys, self.values, self.rows = keys, values, list(rows)
        self.bits = keys.new_empty(0, dtype=torch.uint8) if bits is None else bits
        self.room = self.grown = 0
        self.tables: Tables | None = None
        self._count_bytes()

    @classmethod
    def dense(cls, keys: Tensor, values: Tensor, seen: int, kept: Kept | None) -> "Packed":
        """A cache of one row with keys, values [heads, len, head_dim]. A contiguous tensor is not copied."""
        heads, length, _ = keys.shape
        row = PackedRow([Segment(head * length, length) for head in range(heads)], kept)
        return cls(keys.flatten(0, 1), values.flatten(0, 1), [row], seen)

    def joins(self, other: RowsLayer) -> bool:
        return isinstance(other, Packed)

    def joined(self, others: Sequence["Packed"], room: int) -> "Packed":
        """A new cache of the rows of all caches, with room for `room` tokens in every segment."""
        parts = [self, *others]
        capacity = sum(segment.length + part.grown + room for part in parts for segment in part.segments)
        keys, values = (x.new_empty(capacity, x.shape[1]) for x in (self.keys, self.values))
        bits = [part.bits[s.bits : s.bits + s.bit_bytes] for part in parts for s in part.segments if s.bit_bytes]
        start = first_bit = 0
        for part in parts:
            places = part._places(room)
            for old, new in ((part.keys, keys), (part.values, values)):
                if len(old):
                    torch.index_select(old, 0, places, out=new[start : start + len(places)])
            for segment in part.segments:
                segment.start, segment.length = start, segment.length + part.grown
                segment.bits = first_bit
                start += segment.length + room
                first_bit += segment.bit_bytes
        rows = [row for part in parts for row in part.rows]
        packed = Packed(keys, values, rows, self.seen, torch.cat(bits) if bits else None)
        packed.room = room
        packed._count_bytes()
        return packed

    @property
    def segments(self) -> Iterator[Segment]:
        return (segment for row in self.rows for segment in row.segments)

    def tensors(self) -> list[Tensor]:
        return [self.keys, self.values, self.bits]

    def index_tables(self) -> list[Tensor]:
        return [] if self.tables is None else [table for table in vars(self.tables).values() if table is not None]

    @property
    def filled_bytes(self) -> int:
        return sum(row.filled for row in self.rows)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Append a block of tokens [rows, num_key_value_heads, t, head_dim] to all segments."""
        t = keys.shape[2]
        if t > self.room:
            self._move(t + BLOCK - 1)
        if self.tables is None:
            self.tables = self._tables(keys.shape[1])
        self.write(keys, values)
        self.advance(t)

    def write(self, keys: Tensor, values: Tensor) -> None:
        tables = self.tables
        assert tables is not None, "`append` made them"
        packed_append(self.keys, self.values, tables.lengths, tables.starts, tables.sources, keys, values)

    @property
    def ahead(self) -> int:
        return self.room

    def advance(self, tokens: int) -> None:
        self.room -= tokens
        self.grown += tokens
        for row in self.rows:
            row.filled += tokens * len(row.segments) * self.token_bytes

    def make_room(self, tokens: int) -> None:
        if tokens > self.room:
            self._move(tokens)

    def take_back(self, row: int, tokens: int) -> None:
        for segment in self.rows[row].segments:
            segment.length -= tokens
        self.rows[row].filled -= tokens * len(self.rows[row].segments) * self.token_bytes
        self._forget_tables()

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of query [rows, num_attention_heads, q, head_dim] after an `append` of q tokens."""
        tables, heads = self.tables, query.shape[1]
        assert tables is not None, "`append` made them"
        if tables.heads is None:
            groups = [heads // len(row.segments) for row in self.rows for _ in row.segments]
            tables.heads = torch.tensor([*offsets(groups), sum(groups)], dtype=torch.int32, device=query.device)
            self.group = max(groups)
            # with the room: the same for all tokens until the next move, so that a step can be repeated
            self.longest = max(segment.length for segment in self.segments) + self.grown + self.room
        segments = Segments(tables.starts, tables.lengths, tables.heads, self.group, self.longest)
        visible = Visible(tables.masked, tables.bits, self.bits) if len(self.bits) else ALL
        return packed_attention(query, self.keys, self.values, segments, scaling, visible)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows. The buffers hold the other rows until the next move."""
        self.rows = [self.rows[row] for row in rows]
        self._forget_tables()

    def _move(self, room: int) -> None:
        """Move to new buffers with `room` in every segment."""
        moved = self.joined([], room)
        self.keys, self.values, self.bits, self.room = moved.keys, moved.values, moved.bits, room
        self.grown = 0
        self._forget_tables()

    def _forget_tables(self) -> None:
        """Drop the tables; the next `append` makes them from the segments."""
        self.tables = None
        self.moves += 1

    @property
    def token_bytes(self) -> int:
        """Bytes of one token of one segment."""
        return int((self.keys.shape[1] + self.values.shape[1]) * self.keys.element_size())

    def _count_bytes(self) -> None:
        for row in self.rows:
            row.filled = sum(s.length * self.token_bytes + s.bit_bytes for s in row.segments)
            row.held = row.filled + len(row.segments) * self.room * self.token_bytes

    def _tables(self, kv_heads: int) -> Tables:
        """The tables of all segments; `kv_heads` is num_key_value_heads."""
        segments = list(self.segments)
        sources = [
            row * kv_heads + head * kv_heads // len(packed.segments)
            for row, packed in enumerate(self.rows)
            for head in range(len(packed.segments))
        ]
        numbers = [
            [*(s.start for s in segments), len(self.keys)],
            [*(s.length + self.grown for s in segments), 0],
            [*sources, 0],
            [*(s.masked for s in segments), 0],
            [*(s.bits for s in segments), 0],
        ]
        starts, *tables = torch.tensor(numbers, dtype=torch.int32, device=self.keys.device)
        return Tables(starts, *(table[:-1] for table in tables))

    def _places(self, room: int) -> Tensor:
        """For every row of new buffers with `room`, the old row that moves there; an arbitrary row for room."""
        numbers, place = [], 0
        for segment in self.segments:
            size = segment.length + self.grown + room
            numbers.append((segment.start - place, size))
            place += size
        shift, sizes = torch.tensor(numbers, device=self.keys.device).T
        places = torch.repeat_interleave(shift, sizes, output_size=place)
        return places.add_(torch.arange(place, device=places.device)).clamp_(0, max(len(self.keys) - 1, 0))


def offsets(sizes: Sequence[int]) -> list[int]:
    """The start of each of several consecutive pieces."""
    starts, start = [], 0
    for size in sizes:
        starts.append(start)
        start += size
    return starts


def flat_positions(mask: Tensor, count: int) -> Tensor:
    """Indices [count] of the `count` true elements of mask [n], like `nonzero` but without a wait."""
    slots = mask.cumsum(0) * mask  # from 1; false elements share slot 0, which is dropped
    places = torch.arange(len(mask), device=mask.device)
    return places.new_empty(count + 1).scatter_(0, slots, places)[1:]
