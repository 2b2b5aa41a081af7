"""The sizes of a layer's codebook cache, known on the host before it is packed, and its bytes."""

from dataclasses import dataclass
from functools import cached_property

from kvbench.methods.spindlekv.ops.codebook_layout import reference_types, smallest_integer


@dataclass(frozen=True)
class Sizes:
    """Numbers of one layer's tokens and entries. A stream is a KV head, or a query head with its own codebook."""

    heads: list[int]  # coded tokens of each head that selects
    union: list[int]  # coded tokens of each KV head that any of its heads selects
    windows: list[int]  # raw tokens of each KV head
    keys: list[int]  # entries of each book
    values: list[int]
    gaps: list[int]  # per stream: whether its tokens differ from 0 … tokens-1
    repeats: list[int]  # per stream except the first: whether it has the same tokens as the previous stream

    @cached_property
    def tokens(self) -> list[int]:
        """Coded tokens of each stream."""
        return self.heads if len(self.gaps) == len(self.heads) else self.union

    @property
    def lengths(self) -> list[int]:
        """Coded tokens of each book."""
        streams = len(self.tokens) // len(self.keys)
        return [sum(self.tokens[book * streams : (book + 1) * streams]) for book in range(len(self.keys))]

    @property
    def group(self) -> int:
        """How many heads select tokens in a stream."""
        return len(self.heads) // len(self.tokens)

    def retained(self, unfolded: bool) -> list[int]:
        """Kept tokens, coded or raw: of each head if `unfolded`, otherwise of any head of each KV head."""
        counts = self.heads if unfolded else self.union
        return [count + self.windows[place * len(self.windows) // len(counts)] for place, count in enumerate(counts)]

    def widths(self, entries: list[int]) -> list[int]:
        """Bytes of a reference, per stream, to books with these numbers of entries."""
        return [dtype.itemsize for dtype in reference_types(entries, len(self.tokens))]

    def reference_bytes(self) -> int:
        """Bytes of the references of keys and values."""
        widths = zip(self.widths(self.keys), self.widths(self.values), strict=True)
        return sum(count * sum(both) for count, both in zip(self.tokens, widths, strict=True))

    @cached_property
    def position_offsets(self) -> list[int]:
        """Offset of each stream's positions in the stored positions; -1: its tokens are 0 … tokens-1."""
        offsets, held = [], 0
        for stream, count in enumerate(self.tokens):
            if not self.gaps[stream]:
                offsets.append(-1)
            elif stream and self.repeats[stream - 1]:
                offsets.append(offsets[-1])  # one set for several streams is stored once
            else:
                offsets.append(held)
                held += count
        return offsets

    @cached_property
    def placed(self) -> list[int]:
        """The streams whose positions are stored."""
        return [s for s, gap in enumerate(self.gaps) if gap and not (s and self.repeats[s - 1])]

    @cached_property
    def bit_widths(self) -> list[int]:
        """Bytes of the bits of each head of a stream; 0 if all heads select all tokens."""
        pairs = zip(self.tokens, self._selected, strict=True)
        return [0 if selected == count * self.group else -(-count // 8) for count, selected in pairs]

    @property
    def bit_offsets(self) -> list[int]:
        """Offset of each stream's bits; -1 for a stream without bits."""
        offsets, held = [], 0
        for width in self.bit_widths:
            offsets.append(held if width else -1)
            held += width * self.group
        return offsets

    def nbytes(self, n: int, head_dim: int, itemsize: int, reconstruct: bool) -> int:
        """Bytes of the cache of a prompt of n tokens, with vectors of `itemsize` bytes per channel."""
        vectors = sum(self.keys) + sum(self.values) + 2 * sum(self.windows)
        magnitudes = 2 * sum(self.tokens) if reconstruct else 0
        positions = sum(self.tokens[stream] for stream in self.placed) * smallest_integer(n - 1).itemsize
        bits = sum(self.bit_widths) * self.group
        return (vectors * head_dim + magnitudes) * itemsize + self.reference_bytes() + positions + bits

    @property
    def _selected(self) -> list[int]:
        """Coded tokens of each stream, summed over its heads."""
        group = self.group
        return [sum(self.heads[stream * group : (stream + 1) * group]) for stream in range(len(self.tokens))]
