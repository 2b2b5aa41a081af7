"""SpindleKV's cache: codebook entries, and per kept vector a reference and a magnitude, packed over all heads."""

from dataclasses import dataclass

from torch import Tensor

from kvbench.cache.base import BLOCK, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.storage.codebook_side import Side
from kvbench.ops.codebook_append import codebook_append
from kvbench.ops.codebook_attention import codebook_attention
from kvbench.ops.codebook_layout import KEYS, VALUES, Place, to_tensor
from kvbench.ops.rope import Rope
from kvbench.ops.rope_table import rope_table


@dataclass
class Streams:
    """Which prompt tokens each stream has coded. A stream is a KV head, or a query head with its own codebook."""

    tokens: list[int]  # coded tokens of the prompt, per stream
    positions: Tensor | None  # of all streams' tokens, in the narrowest integer type
    position_offsets: list[int]  # per stream; -1: its tokens are 0 … tokens-1
    bits: Tensor | None  # uint8, per stream [query heads, ceil(tokens / 8)]: who kept what
    bit_offsets: list[int]  # per stream; -1: all its query heads kept all


@dataclass
class Raw:
    """The prompt's last tokens as they are, packed over KV heads: [rows, head_dim]."""

    keys: Tensor  # after RoPE, in paired order
    values: Tensor
    windows: list[int]  # rows of each KV head


class CodebookLayer(LayerCache):
    """Coded vectors of `streams`, and the prompt's last tokens as they are.

    Query head q reads stream q // (num_attention_heads / streams). Keys are coded before RoPE and rotated to their
    original positions whenever they are read. A decoded token is matched to an entry or becomes one, once per stream;
    room for the entries of BLOCK tokens is made at once, since only the device knows how many of them become one.
    """

    def __init__(self, keys: Side, values: Side, streams: Streams, raw: Raw, seen: int, kept: Kept, rope: Rope):
        super().__init__(seen, kept)
        self.k, self.v, self.streams, self.raw = keys, values, streams, raw
        self.prompt, self.rope = seen, rope
        self.decoded = self.room = 0
        self.places, self.layout = self._lay_out()

    def tensors(self) -> list[Tensor]:
        streams = [t for t in (self.streams.positions, self.streams.bits) if t is not None]
        return [*self.k.tensors(), *self.v.tensors(), *streams, self.raw.keys, self.raw.values]

    @property
    def filled_bytes(self) -> int:
        """As if every decoded vector had become an entry: how many have is known to the device alone."""
        unused = (self.room - self.decoded) * (self.k.token_bytes + self.v.token_bytes)
        return super().filled_bytes - unused

    def append(self, keys: Tensor, values: Tensor) -> None:
        table = rope_table(self.rope, keys.shape[-1])
        paired = table.pair(keys[0])
        for number in range(keys.shape[2]):
            if self.decoded == self.room:
                self._make_room(BLOCK)
            turn = table.turns(self.rope, self.seen + keys.shape[2], keys.device)[self.seen + number]
            self._code(self.k, paired[:, number], turn, KEYS)
            self._code(self.v, values[0, :, number], None, VALUES)
            self.decoded += 1

    def _code(self, side: Side, vectors: Tensor, turn: Tensor | None, fields: int) -> None:
        codebook_append(
            side.entries,
            side.references,
            side.magnitudes,
            side.sizes,
            vectors,
            turn,
            self.layout,
            fields,
            self.decoded,
            max(side.capacities),
            side.bound,
        )

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        table = rope_table(self.rope, query.shape[-1])
        k, v, streams = self.k, self.v, self.streams
        grouped = table.pair(query[0, :, 0]).unflatten(0, (len(streams.tokens), -1))
        out = codebook_attention(
            grouped,
            k.entries,
            k.references,
            k.magnitudes,
            v.entries,
            v.references,
            v.magnitudes,
            streams.positions,
            streams.bits,
            self.raw.keys,
            self.raw.values,
            table.turns(self.rope, self.prompt + self.decoded, query.device),
            self.layout,
            max(*streams.tokens, *self.raw.windows),
            self.prompt,
            self.decoded,
            scaling,
        )
        return out.view_as(query)

    def _make_room(self, tokens: int) -> None:
        """Room for `tokens` more decoded tokens."""
        lengths = [count + self.room for count in self.streams.tokens]
        self.room += tokens
        for side in (self.k, self.v):
            side.make_room(lengths, tokens)
        self.places, self.layout = self._lay_out()

    def _lay_out(self) -> tuple[list[Place], Tensor]:
        """Where each stream lies in the packed tensors."""
        streams, windows = self.streams, self.raw.windows
        copies = len(streams.tokens) // len(windows)
        places, start = [], 0
        for number, tokens in enumerate(streams.tokens):
            head = number // copies
            places.append(
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
            start += tokens + self.room
        return places, to_tensor(places, self.k.entries.device)
