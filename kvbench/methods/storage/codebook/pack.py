"""Codebooks of one layer, of a cache or of all those of a batch: one operation codes a token, one attends to all."""

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvbench.cache.pack import Pack, PackRow
from kvbench.cache.packed import BLOCK
from kvbench.methods.storage.codebook.side import Side
from kvbench.ops.codebook_append import codebook_append
from kvbench.ops.codebook_attention import codebook_attention
from kvbench.ops.codebook_layout import Layout, Place, Rotation, Seen, Vectors, to_tensor
from kvbench.ops.rope import Rope
from kvbench.ops.rope_table import rope_table
from kvbench.ops.softmax import Scaling, of_rows


@dataclass
class Streams:
    """Which prompt tokens each stream has coded. A stream is a KV head, or a query head with its own codebook."""

    tokens: list[int]  # coded tokens of the prompt, per stream
    positions: Tensor | None  # of all streams' tokens, in the narrowest integer type
    position_offsets: list[int]  # per stream; -1: its tokens are 0 … tokens-1
    bits: Tensor | None  # uint8, per stream [query heads, ceil(tokens / 8)]: who kept what
    bit_offsets: list[int]  # per stream; -1: all its query heads kept all

    @classmethod
    def joined(cls, parts: Sequence["Streams"]) -> "Streams":
        positions = _behind([Held(own.positions, own.position_offsets) for own in parts])
        bits = _behind([Held(own.bits, own.bit_offsets) for own in parts])
        return cls([count for own in parts for count in own.tokens], *positions, *bits)

    def keep(self, streams: Sequence[int]) -> None:
        """Of other streams nothing is read any more."""
        for name in ("tokens", "position_offsets", "bit_offsets"):
            setattr(self, name, [getattr(self, name)[stream] for stream in streams])

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.positions, self.bits) if t is not None]


@dataclass
class Raw:
    """The prompt's last tokens as they are, packed over KV heads: [rows, head_dim]."""

    keys: Tensor  # after RoPE, in paired order
    values: Tensor
    windows: list[int]  # rows of each KV head

    @classmethod
    def joined(cls, parts: Sequence["Raw"]) -> "Raw":
        keys, values = (torch.cat([getattr(own, side) for own in parts]) for side in ("keys", "values"))
        return cls(keys, values, [count for own in parts for count in own.windows])

    def keep(self, heads: Sequence[int]) -> None:
        self.keys, self.values = (
            torch.cat([parts[head] for head in heads])
            for parts in (self.keys.split(self.windows), self.values.split(self.windows))
        )
        self.windows = [self.windows[head] for head in heads]


@dataclass
class CodebookRow(PackRow):
    """What one cache has of codebooks."""

    fixed: int = 0  # bytes of positions, bits and raw vectors
    token_bytes: int = 0  # of one more token, all of whose vectors become entries


class Codebooks(Pack[CodebookRow]):
    """Coded vectors of the streams of all rows, and the prompt's last tokens as they are.

    Rows have equally many streams and KV heads. Query head q of a row reads its stream
    q // (num_attention_heads / streams). Keys are coded before RoPE and rotated to their original positions whenever
    they are read. A decoded token is matched to an entry or becomes one, once per stream; room for the entries of BLOCK
    tokens is made at once, since only the device knows how many of them become one. No more: the width of references
    depends on it. How many tokens were decoded is on the device, too, for each stream, where it is counted.
    """

    takes_blocks = False
    room = sys.maxsize  # it makes its own

    def __init__(
        self,
        keys: Side,
        values: Side,
        streams: Streams,
        raw: Raw,
        prompt: int,
        rope: Rope,
        rows: Sequence[CodebookRow] = (),
    ):
        """Of a prompt of `prompt` tokens. rows: whose codebooks these are, one row after the other; none: one row."""
        self.k, self.v, self.streams, self.raw = keys, values, streams, raw
        self.prompt, self.rope = prompt, rope
        self.decoded = self.capacity = 0  # tokens that came after the prompt, and that have their place
        fixed = sum(t.nbytes for t in (*streams.tensors(), raw.keys, raw.values))
        self.rows = list(rows) or [CodebookRow(fixed=fixed)]
        self._lay_out()

    def joins(self, other: Pack[Any]) -> bool:
        if not isinstance(other, Codebooks):
            return False
        return (self._kind(), self.k.kind(), self.v.kind()) == (other._kind(), other.k.kind(), other.v.kind())

    def _kind(self) -> Hashable:
        return len(self.streams.tokens), len(self.raw.windows), self.prompt, self.rope

    @classmethod
    def joined(cls, parts: Sequence["Codebooks"], room: int) -> "Codebooks":
        """Room is made when a token comes, as in a cache alone: the width of its references depends on it."""
        if len(parts) == 1:
            return parts[0]
        lengths = [own.streams.tokens for own in parts]
        k, v = (Side.joined([getattr(own, side) for own in parts], lengths) for side in ("k", "v"))
        streams, raw = Streams.joined([own.streams for own in parts]), Raw.joined([own.raw for own in parts])
        return cls(k, v, streams, raw, parts[0].prompt, parts[0].rope, [row for own in parts for row in own.rows])

    def tensors(self) -> list[Tensor]:
        return [*self.k.tensors(), *self.v.tensors(), *self.streams.tensors(), self.raw.keys, self.raw.values]

    def index_tables(self) -> list[Tensor]:
        return [self.layout.places, self.layout.decoded, self.k.sizes, self.v.sizes]

    def append(self, keys: Tensor, values: Tensor) -> None:
        if keys.shape[2] == 1:
            return self._code(keys, values)
        for token in zip(keys.split(1, dim=2), values.split(1, dim=2), strict=True):
            self._code(*token)

    def _code(self, keys: Tensor, values: Tensor) -> None:
        """One token's vectors [rows, num_key_value_heads, 1, head_dim]."""
        if not self.ahead:
            self._make_place(BLOCK)
        self.write(keys, values)
        self.advance(1)

    def write(self, keys: Tensor, values: Tensor) -> None:
        width, k, v = keys.shape[-1], self.k, self.v
        new = Vectors(keys.reshape(-1, width), values.reshape(-1, width))
        codebook_append(k.coded, v.coded, k.books, v.books, new, self._rotation(), self.layout)

    @property
    def ahead(self) -> int:
        return self.capacity - self.decoded

    def advance(self, tokens: int) -> None:
        self.decoded += tokens
        for row in self.rows:
            row.filled_bytes += tokens * row.token_bytes

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head, [rows, num_attention_heads, 1, head_dim]."""
        streams, raw = self.streams, self.raw
        out = codebook_attention(
            query.reshape(len(streams.tokens), -1, query.shape[-1]),
            self.k.coded,
            self.v.coded,
            Seen(streams.positions, streams.bits),
            Vectors(raw.keys, raw.values),
            self._rotation(),
            self.layout,
            self.longest,
            of_rows(scaling, len(self.rows)),
        )
        return out.view_as(query)

    def _rotation(self) -> Rotation:
        device, table = self.k.entries.device, rope_table(self.rope, self.k.entries.shape[1])
        return Rotation(table.order_on(device), table.turns(self.rope, self.prompt + self.capacity, device))

    def keep(self, rows: Sequence[int]) -> None:
        of_row, heads = (len(each) // len(self.rows) for each in (self.streams.tokens, self.raw.windows))
        streams = [row * of_row + stream for row in rows for stream in range(of_row)]
        lengths = [count + self.capacity for count in self.streams.tokens]
        self.k, self.v = (side.kept(streams, lengths) for side in (self.k, self.v))
        self.streams.keep(streams)
        self.raw.keep([row * heads + head for row in rows for head in range(heads)])
        self.rows = [self.rows[row] for row in rows]
        self._lay_out()

    def _make_place(self, tokens: int) -> None:
        """For `tokens` more decoded tokens."""
        lengths = [count + self.capacity for count in self.streams.tokens]
        self.capacity += tokens
        for side in (self.k, self.v):
            side.make_room(lengths, tokens)
        self._lay_out()

    def _lay_out(self) -> None:
        """Note where each stream lies in the packed tensors, and what else a step reads."""
        streams, windows = self.streams, self.raw.windows
        copies = len(streams.tokens) // len(windows)
        self.places, start = [], 0
        for number, tokens in enumerate(streams.tokens):
            head = number // copies
            self.places.append(
                Place(
                    tokens,
                    start,
                    streams.position_offsets[number],
                    streams.bit_offsets[number],
                    sum(windows[:head]),
                    windows[head],
                    *self.k.place(number),
                    *self.v.place(number),
                )
            )
            start += tokens + self.capacity
        device = self.k.entries.device
        decoded = torch.full((len(streams.tokens),), self.decoded, dtype=torch.int32, device=device)
        self.layout = Layout(to_tensor(self.places, device), self.prompt, decoded)
        self.longest = max(*(tokens + self.capacity for tokens in streams.tokens), *windows)
        self.moves += 1
        self._count_bytes()

    def _count_bytes(self) -> None:
        """Bytes of each row, without room as if every decoded vector had become an entry."""
        of_row = len(self.streams.tokens) // len(self.rows)
        for number, row in enumerate(self.rows):
            streams = range(number * of_row, (number + 1) * of_row)
            tokens = [self.streams.tokens[stream] + self.capacity for stream in streams]
            row.token_bytes = sum(side.token_bytes(streams) for side in (self.k, self.v))
            row.nbytes = row.fixed + sum(side.stored_bytes(streams, tokens) for side in (self.k, self.v))
            row.filled_bytes = row.nbytes - self.ahead * row.token_bytes


class Held(NamedTuple):
    tensor: Tensor | None
    offsets: list[int]  # in it; -1 for what has nothing there


def _behind(parts: Sequence[Held]) -> Held:
    """Tensors one behind the other, and offsets in them; -1 stays."""
    offsets, start = [], 0
    for held, own in parts:
        offsets += [offset if offset < 0 else start + offset for offset in own]
        start += 0 if held is None else len(held)
    tensors = [each for each, _ in parts if each is not None]
    return Held(torch.cat(tensors) if tensors else None, offsets)
