"""Packed storage: keys and values of any number of heads and rows, each of its own length, in one buffer.

A segment is what one stored head of one row of a batch holds: consecutive rows of the buffers, with room behind them.
Every segment grows by the same tokens, so one number says how much room is left in all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kvbench.cache.pack import Pack, PackRow
from kvbench.ops.packed_append import packed_append
from kvbench.ops.packed_attention import ALL, packed_attention
from kvbench.ops.segments import Segments, Visible
from kvbench.ops.softmax import Scaling

# Tokens by which a buffer grows while decoding: one copy per block, at most one block of slack.
BLOCK = 64


@dataclass
class Segment:
    """Place and size of one stored head; the numbers are those of the last move."""

    start: int  # its first row in the buffers
    length: int  # tokens held
    masked: int = 0  # first tokens of these that have a bit for each query head of the group
    bits: int = 0  # its first byte in the bits: [group, ceil(masked / 8)], the first token in the lowest bit
    bit_bytes: int = 0


@dataclass
class PackedRow(PackRow):
    """The segments of one row of a batch, in order of its stored heads."""

    segments: list[Segment] = field(default_factory=list)


@dataclass
class Tables:
    """The segments of all rows on the device, int32 [segments] each."""

    starts: Tensor  # [segments + 1], the last is the capacity
    lengths: Tensor
    sources: Tensor  # the row among new keys [rows · num_key_value_heads, t, head_dim]
    masked: Tensor
    bits: Tensor
    heads: Tensor | None = field(default=None)  # [segments + 1] the first of its query heads, of those of all rows


class Packed(Pack[PackedRow]):
    """Keys and values [capacity, head_dim] of the segments of `rows`, and bits of those that have some, uint8 [bytes].

    A row stores num_key_value_heads or num_attention_heads segments.
    """

    takes_blocks = True
    takes_back = True

    def __init__(self, keys: Tensor, values: Tensor, rows: Sequence[PackedRow], bits: Tensor | None = None):
        """Without room: the segments fill the buffers."""
        self.keys, self.values, self.rows = keys, values, list(rows)
        self.bits = keys.new_empty(0, dtype=torch.uint8) if bits is None else bits
        self.room = self.grown = 0
        self.tables: Tables | None = None
        self._count_bytes()

    @classmethod
    def dense(cls, keys: Tensor, values: Tensor) -> "Packed":
        """One row of keys, values [heads, len, head_dim]; of a contiguous tensor it is no copy."""
        heads, length, _ = keys.shape
        row = PackedRow(segments=[Segment(head * length, length) for head in range(heads)])
        return cls(keys.flatten(0, 1), values.flatten(0, 1), [row])

    @classmethod
    def chosen(
        cls,
        keys: Tensor,
        values: Tensor,
        chosen: Tensor,
        group_bits: Tensor | None = None,
        lengths: Sequence[int] | None = None,
    ) -> "Packed":
        """One row of the tokens `chosen`, bool [heads, n], of keys, values [num_key_value_heads, n, head_dim].

        heads is num_key_value_heads or num_attention_heads. group_bits, bool [heads, group, n]: which query heads of
        a head's group see its tokens. lengths: how many tokens each head has; None: one wait for the device, which
        has to report them.
        """
        heads, n = chosen.shape
        lengths = chosen.sum(dim=1).tolist() if lengths is None else lengths
        tokens = flat_positions(chosen.flatten(), sum(lengths))  # [total] in [0, heads · n)
        source = tokens
        if heads > len(keys):
            source = tokens // n // (heads // len(keys)) * n + tokens % n
        segments = [Segment(start, length) for start, length in zip(offsets(lengths), lengths, strict=True)]
        rows = PackedRow(segments=segments)
        bits = None if group_bits is None else _with_bits(rows, group_bits, tokens)
        return cls(keys.flatten(0, 1)[source], values.flatten(0, 1)[source], [rows], bits)

    def joins(self, other: Pack[Any]) -> bool:
        return isinstance(other, Packed)

    @classmethod
    def joined(cls, parts: Sequence["Packed"], room: int) -> "Packed":
        """The rows of all parts as one, with `room` for tokens in every segment. Copies; the parts are left as they
        are, but for their rows, which are those of the new one."""
        capacity = sum(segment.length + part.grown + room for part in parts for segment in part.segments)
        keys, values = (x.new_empty(capacity, x.shape[1]) for x in (parts[0].keys, parts[0].values))
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
        packed = cls(keys, values, [row for part in parts for row in part.rows], torch.cat(bits) if bits else None)
        packed.room = room
        packed._count_bytes()
        return packed

    @property
    def segments(self) -> Iterator[Segment]:
        return (segment for row in self.rows for segment in row.segments)

    def tensors(self) -> list[Tensor]:
        return [self.keys, self.values, self.bits]

    def append(self, keys: Tensor, values: Tensor) -> None:
        """One more block of tokens [rows, num_key_value_heads, t, head_dim] in every segment."""
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
            row.filled_bytes += tokens * len(row.segments) * self.token_bytes

    def make_room(self, tokens: int) -> None:
        if tokens > self.room:
            self._move(tokens)

    def take_back(self, row: int, tokens: int) -> None:
        for segment in self.rows[row].segments:
            segment.length -= tokens
        self.rows[row].filled_bytes -= tokens * len(self.rows[row].segments) * self.token_bytes
        self._forget_tables()

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of query [rows, num_attention_heads, q, head_dim] after an `append` of q tokens."""
        tables, heads = self.tables, query.shape[1]
        assert tables is not None, "`append` made them"
        if tables.heads is None:
            groups = [heads // len(row.segments) for row in self.rows for _ in row.segments]
            tables.heads = torch.tensor([*offsets(groups), sum(groups)], dtype=torch.int32, device=query.device)
            self.group = max(groups)
            # the capacity: the same for all tokens until the next move, so that a step can be repeated
            self.longest = max(segment.length for segment in self.segments) + self.grown + self.room
        segments = Segments(tables.starts, tables.lengths, tables.heads, self.group, self.longest)
        visible = Visible(tables.masked, tables.bits, self.bits) if len(self.bits) else ALL
        return packed_attention(query, self.keys, self.values, segments, scaling, visible)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows and drop the others, whose part of the buffers is free after the next move."""
        self.rows = [self.rows[row] for row in rows]
        self._forget_tables()

    def _move(self, room: int) -> None:
        """Into new buffers with `room` in every segment."""
        moved = Packed.joined([self], room)
        self.keys, self.values, self.bits, self.room = moved.keys, moved.values, moved.bits, room
        self.grown = 0
        self._forget_tables()

    def _forget_tables(self) -> None:
        """They are made anew, of the segments as they are then."""
        self.tables = None
        self.moves += 1

    @property
    def token_bytes(self) -> int:
        """Bytes of one token of one segment."""
        return int((self.keys.shape[1] + self.values.shape[1]) * self.keys.element_size())

    def _count_bytes(self) -> None:
        for row in self.rows:
            row.filled_bytes = sum(s.length * self.token_bytes + s.bit_bytes for s in row.segments)
            row.nbytes = row.filled_bytes + len(row.segments) * self.room * self.token_bytes

    def _tables(self, kv_heads: int) -> Tables:
        """`kv_heads` is num_key_value_heads."""
        every = list(self.segments)
        sources = [
            row * kv_heads + head * kv_heads // len(packed.segments)
            for row, packed in enumerate(self.rows)
            for head in range(len(packed.segments))
        ]
        numbers = [
            [*(s.start for s in every), len(self.keys)],
            [*(s.length + self.grown for s in every), 0],
            [*sources, 0],
            [*(s.masked for s in every), 0],
            [*(s.bits for s in every), 0],
        ]
        starts, *others = torch.tensor(numbers, dtype=torch.int32, device=self.keys.device)
        return Tables(starts, *(table[:-1] for table in others))

    def _places(self, room: int) -> Tensor:
        """For every row of new buffers with `room`, the row of these that comes there: any one where there is room."""
        numbers, place = [], 0
        for segment in self.segments:
            size = segment.length + self.grown + room
            numbers.append((segment.start - place, size))
            place += size
        shift, sizes = torch.tensor(numbers, device=self.keys.device).T
        places = torch.repeat_interleave(shift, sizes, output_size=place)
        return places.add_(torch.arange(place, device=places.device)).clamp_(0, max(len(self.keys) - 1, 0))


def offsets(sizes: Sequence[int]) -> list[int]:
    """Where each of several things begins that lie behind each other."""
    starts, start = [], 0
    for size in sizes:
        starts.append(start)
        start += size
    return starts


def flat_positions(mask: Tensor, count: int) -> Tensor:
    """Indices [count] of the `count` true elements of mask [n], as `nonzero` has them but without a wait."""
    slots = mask.cumsum(0) * mask  # from 1; the others share slot 0, which is left out
    every = torch.arange(len(mask), device=mask.device)
    return every.new_empty(count + 1).scatter_(0, slots, every)[1:]


def _with_bits(row: PackedRow, group_bits: Tensor, tokens: Tensor) -> Tensor:
    """The bits of tokens [total], positions in [0, heads · n), from group_bits [heads, group, n]; noted in `row`."""
    _, group, n = group_bits.shape
    strides = [-(-segment.length // 8) for segment in row.segments]
    first = offsets([group * stride for stride in strides])
    for segment, stride, start in zip(row.segments, strides, first, strict=True):
        segment.masked, segment.bits, segment.bit_bytes = segment.length, start, group * stride
    numbers = [[s.start for s in row.segments], [s.bits for s in row.segments], strides]
    starts, begins, widths = torch.tensor(numbers, device=tokens.device)
    head = tokens // n
    place = torch.arange(len(tokens), device=tokens.device) - starts[head]  # within the segment
    seen = group_bits.transpose(1, 2).flatten(0, 1)[tokens]  # [total, group]
    within = torch.arange(group, device=tokens.device) * widths[head][:, None]
    byte = (begins[head] + place // 8)[:, None] + within  # [total, group]
    bits = torch.zeros(sum(s.bit_bytes for s in row.segments), dtype=torch.int32, device=tokens.device)
    return bits.scatter_add_(0, byte.flatten(), (seen.int() << (place % 8)[:, None].int()).flatten()).to(torch.uint8)
