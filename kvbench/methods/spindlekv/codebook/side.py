"""The keys or the values of a codebook cache: entries of all books, references and magnitudes of all streams."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.methods.spindlekv.ops.codebook_layout import Books, Coded, reference_types, view_references


class SidePlace(NamedTuple):
    """The part of `codebook_layout.Place` for keys or for values."""

    book: int  # first row of the stream's book
    references: int  # offset of the references in bytes
    width: int  # width of a reference in bytes


class Side:
    """Coded vectors of all streams, packed. A stream's references have the narrowest type for its book's entries.

    It is made from the prompt without room for further tokens; `make_room` adds room.
    """

    def __init__(
        self,
        entries: Tensor,
        sizes: Tensor,
        capacities: list[int],
        references: list[Tensor],
        magnitudes: Tensor | None,
        bound: float,
    ):
        """entries [sum of capacities, head_dim]: unit vectors, or whole vectors if magnitudes [tokens] is None.

        sizes: int64 [books] on the device; capacities: the same numbers on the host; references: [tokens] per stream,
        of any integer type.
        """
        self.entries, self.sizes, self.capacities = entries, sizes, capacities
        self.magnitudes, self.bound = magnitudes, bound
        self._pack(references)

    def tensors(self) -> list[Tensor]:
        stored = [self.entries, self.references]
        return stored if self.magnitudes is None else [*stored, self.magnitudes]

    @property
    def coded(self) -> Coded:
        return Coded(self.entries, self.references, self.magnitudes)

    @property
    def books(self) -> Books:
        """The books, with room for further entries."""
        return Books(self.sizes, max(self.capacities), self.bound)

    @property
    def entry_bytes(self) -> int:
        return self.entries.shape[1] * self.entries.element_size()

    def vector_bytes(self, stream: int) -> int:
        """Bytes of the reference and the magnitude of one vector."""
        return self.widths[stream] + (0 if self.magnitudes is None else self.magnitudes.element_size())

    def token_bytes(self, streams: Sequence[int]) -> int:
        """Bytes of one more token in these streams if it becomes an entry in all of them."""
        return sum(self.vector_bytes(stream) + self.entry_bytes for stream in streams)

    def stored_bytes(self, streams: Sequence[int], lengths: Sequence[int]) -> int:
        """Bytes of these streams, which have `lengths` tokens, and of their books."""
        books = {self._book(stream) for stream in streams}
        vectors = sum(self.vector_bytes(stream) * n for stream, n in zip(streams, lengths, strict=True))
        return vectors + sum(self.capacities[book] for book in books) * self.entry_bytes

    def kind(self) -> Hashable:
        """The properties that sides must have in common to be joined."""
        return self.streams, len(self.capacities), self.entries.dtype, self.magnitudes is None, self.bound

    @classmethod
    def joined(cls, sides: Sequence["Side"], lengths: Sequence[Sequence[int]]) -> "Side":
        """One side with the streams and books of all `sides`; `lengths` has the tokens of each stream of each side."""
        first = sides[0]
        return cls(
            torch.cat([side.entries for side in sides]),
            torch.cat([side.sizes for side in sides]),
            [capacity for side in sides for capacity in side.capacities],
            [part for side, of_streams in zip(sides, lengths, strict=True) for part in side.split(of_streams)],
            None if first.magnitudes is None else torch.cat([side.magnitudes for side in sides]),
            first.bound,
        )

    def kept(self, streams: Sequence[int], lengths: Sequence[int]) -> "Side":
        """A side with only these streams, which are all streams of some books; lengths: tokens of every stream."""
        books = sorted({self._book(stream) for stream in streams})
        entries, references = self.entries.split(self.capacities), self.split(lengths)
        magnitudes = None
        if self.magnitudes is not None:
            of_streams = self.magnitudes.split(list(lengths))
            magnitudes = torch.cat([of_streams[stream] for stream in streams])
        return Side(
            torch.cat([entries[book] for book in books]),
            torch.cat([self.sizes[book : book + 1] for book in books]),
            [self.capacities[book] for book in books],
            [references[stream] for stream in streams],
            magnitudes,
            self.bound,
        )

    def split(self, lengths: Sequence[int]) -> list[Tensor]:
        """The references of each stream; lengths: tokens of each stream."""
        places = zip(self.offsets, self.widths, lengths, strict=True)
        return [view_references(self.references, *place) for place in places]

    def place(self, stream: int) -> SidePlace:
        """The place of a stream's vectors in the packed tensors."""
        return SidePlace(sum(self.capacities[: self._book(stream)]), self.offsets[stream], self.widths[stream])

    def make_room(self, lengths: list[int], tokens: int) -> None:
        """Add room for `tokens` tokens, all of which may become entries, to streams of `lengths` tokens each."""
        streams, books = len(lengths), len(self.capacities)
        # zeros: attention multiplies entries without references by 0
        self.entries = spread(self.entries, self.capacities, tokens * streams // books)
        self.capacities = [capacity + tokens * streams // books for capacity in self.capacities]
        if self.magnitudes is not None:
            self.magnitudes = spread(self.magnitudes, lengths, tokens)
        self._pack(self.split(lengths), tokens)

    def _pack(self, references: list[Tensor], room: int = 0) -> None:
        """Pack the references of all streams into bytes, each with room for `room` more, in the type for its book.

        The widest come first, so that all are aligned.
        """
        self.streams, self.count = len(references), sum(len(r) + room for r in references)
        types = reference_types(self.capacities, self.streams)
        self.widths = [dtype.itemsize for dtype in types]
        gap = self.entries.new_zeros(room * max(self.widths), dtype=torch.uint8)
        parts, self.offsets, offset = [], [0] * self.streams, 0
        for s in self._by_width():
            narrow = references[s] if references[s].dtype == types[s] else references[s].to(types[s])
            parts.append(narrow if narrow.dtype == torch.uint8 else narrow.view(torch.uint8))
            if room:
                parts.append(gap[: room * self.widths[s]])
            self.offsets[s] = offset
            offset += self.widths[s] * (len(narrow) + room)
        self.references = torch.cat(parts)

    def _by_width(self) -> list[int]:
        return sorted(range(self.streams), key=lambda s: -self.widths[s])

    def _book(self, stream: int) -> int:
        return stream * len(self.capacities) // self.streams


def spread(x: Tensor, lengths: list[int], room: int) -> Tensor:
    """x [sum of lengths, …] with `room` rows of zeros after each part of lengths[i] rows."""
    gap = x.new_zeros(room, *x.shape[1:])
    return torch.cat([part for piece in x.split(lengths) for part in (piece, gap)])
