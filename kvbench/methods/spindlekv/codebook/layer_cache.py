"""SpindleKV's cache: codebook entries, and a reference and a magnitude per kept vector, packed over all heads.

It holds one sequence or all sequences of a batch: one operator codes a token of all of them, another attends to all.
"""

import sys
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from kvbench.cache.base import BLOCK, Row
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.rows import RowsLayer
from kvbench.methods.spindlekv.codebook.side import Side
from kvbench.methods.spindlekv.codebook.streams import Raw, Streams
from kvbench.methods.spindlekv.ops.codebook_append import codebook_append
from kvbench.methods.spindlekv.ops.codebook_attention import codebook_attention
from kvbench.methods.spindlekv.ops.codebook_layout import Layout, Place, Rotation, Seen, Vectors, to_tensor
from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.ops.rope import Rope
from kvbench.ops.softmax import Scaling, of_rows


class CodebookRow(Row):
    """The bytes of one sequence in a layer of codebooks."""

    def __init__(self, kept: Kept | None, beside: int):
        """beside: bytes of positions, bits and raw vectors."""
        super().__init__(kept)
        self.beside = beside
        self.token_bytes = 0  # bytes of one more token if all its vectors become entries


class CodebookLayer(RowsLayer):
    """Coded vectors of the streams of all rows, and the prompt's last tokens uncompressed.

    All rows have the same number of streams and of KV heads. Query head q of a row reads the row's stream
    q // (num_attention_heads / streams). Keys are coded before RoPE and rotated to their original positions whenever
    they are read. In each stream a decoded token is matched to an entry or becomes an entry. Only the device knows how
    many become entries, so room is made for the entries of BLOCK tokens at once, and not for more, because the width of
    references depends on it. The number of decoded tokens of each stream is counted on the device, too.
    """

    rows: list[CodebookRow]
    room = sys.maxsize  # `append` makes room when needed

    def __init__(
        self,
        keys: Side,
        values: Side,
        streams: Streams,
        raw: Raw,
        seen: int,
        kept: Kept | None,
        rope: Rope,
        rows: Sequence[CodebookRow] = (),
    ):
        """rows: the sequences that these codebooks belong to, in order; none: one sequence."""
        super().__init__(seen, kept)
        self.k, self.v, self.streams, self.raw = keys, values, streams, raw
        self.prompt, self.rope = seen, rope
        self.decoded = self.capacity = 0  # tokens after the prompt, and the places for them
        beside = sum(t.nbytes for t in (*streams.tensors(), raw.keys, raw.values))
        self.rows = list(rows) or [CodebookRow(kept, beside)]
        self._lay_out()

    def joins(self, other: RowsLayer) -> bool:
        """Whether two caches can be joined. A cache with decoded tokens cannot."""
        if not isinstance(other, CodebookLayer) or self.decoded or other.decoded:
            return False
        return self._kind() == other._kind()

    def _kind(self) -> Hashable:
        streams, heads = len(self.streams.tokens), len(self.raw.windows)
        return streams, heads, self.prompt, self.rope, self.k.kind(), self.v.kind()

    def joined(self, others: Sequence["CodebookLayer"], room: int) -> "CodebookLayer":
        """Room is made when a token is appended, as in a single cache: the width of references depends on it."""
        if not others:
            return self
        parts = [self, *others]
        lengths = [part.streams.tokens for part in parts]
        k, v = (Side.joined([getattr(part, side) for part in parts], lengths) for side in ("k", "v"))
        streams, raw = Streams.joined([part.streams for part in parts]), Raw.joined([part.raw for part in parts])
        rows = [row for part in parts for row in part.rows]
        return CodebookLayer(k, v, streams, raw, self.prompt, None, self.rope, rows)

    def tensors(self) -> list[Tensor]:
        return [*self.k.tensors(), *self.v.tensors(), *self.streams.tensors(), self.raw.keys, self.raw.values]

    def index_tables(self) -> list[Tensor]:
        return [self.layout.places, self.layout.decoded, self.k.sizes, self.v.sizes]

    @property
    def filled_bytes(self) -> int:
        """Bytes as if every decoded vector had become an entry: only the device knows how many have."""
        return sum(row.filled for row in self.rows)

    def append(self, keys: Tensor, values: Tensor) -> None:
        if keys.shape[2] == 1:
            return self._code(keys, values)
        for token in zip(keys.split(1, dim=2), values.split(1, dim=2), strict=True):
            self._code(*token)

    def _code(self, keys: Tensor, values: Tensor) -> None:
        """Code one token's vectors, [rows, num_key_value_heads, 1, head_dim]."""
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
            row.filled += tokens * row.token_bytes

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
        count, heads = (len(numbers) // len(self.rows) for numbers in (self.streams.tokens, self.raw.windows))
        streams = [row * count + stream for row in rows for stream in range(count)]
        lengths = [tokens + self.capacity for tokens in self.streams.tokens]
        self.k, self.v = (side.kept(streams, lengths) for side in (self.k, self.v))
        self.streams.keep(streams)
        self.raw.keep([row * heads + head for row in rows for head in range(heads)])
        self.rows = [self.rows[row] for row in rows]
        self._lay_out()

    def _make_place(self, tokens: int) -> None:
        """Make places for `tokens` more decoded tokens."""
        lengths = [count + self.capacity for count in self.streams.tokens]
        self.capacity += tokens
        for side in (self.k, self.v):
            side.make_room(lengths, tokens)
        self._lay_out()

    def _lay_out(self) -> None:
        """Compute the place of each stream in the packed tensors, and the other numbers that a step reads."""
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
        """Count the bytes of each row. Filled bytes count every decoded vector as an entry."""
        count = len(self.streams.tokens) // len(self.rows)
        for number, row in enumerate(self.rows):
            streams = range(number * count, (number + 1) * count)
            tokens = [self.streams.tokens[stream] + self.capacity for stream in streams]
            row.token_bytes = sum(side.token_bytes(streams) for side in (self.k, self.v))
            row.held = row.beside + sum(side.stored_bytes(streams, tokens) for side in (self.k, self.v))
            row.filled = row.held - self.ahead * row.token_bytes
