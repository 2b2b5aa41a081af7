"""From the tokens that heads want to a codebook cache: heads of several layers at once, one wait for their sizes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.storage.codebook_side import Side
from kvbench.methods.storage.codebooks import Raw, Streams
from kvbench.ops.bits import pack_bits
from kvbench.ops.codebook_layout import smallest_integer
from kvbench.ops.directions import bound
from kvbench.ops.greedy_cover import greedy_covers


@dataclass
class Rows:
    """The vectors to code, per book, in the order of KV head and position."""

    index: Tensor  # int64 [books, most]: rows of the layer's vectors [num_key_value_heads · n, head_dim]
    lengths: Tensor  # int64 [books]: how many of them are meant
    counts: Tensor  # int64 [books, most]: for how many query heads each stands; 0 beyond lengths

    @classmethod
    def of(cls, wanted: Tensor, books: int, heads: int, most: int) -> "Rows":
        """Of wanted [streams, query heads, n], streams of `heads` KV heads: at most `most` tokens for each stream."""
        streams, _, n = wanted.shape
        counts = wanted.sum(dim=1).view(books, -1)  # [books, streams of a book · n]
        index, lengths = compact(counts > 0, most * streams // books)
        copies = streams // heads  # above 1 only where each stream has its own book
        first = torch.arange(books, device=wanted.device) // copies * n
        return cls(index + first[:, None], lengths, counts.gather(1, index))


@dataclass
class Covered:
    """The codebooks of one side before they are packed."""

    x: Tensor  # float32 [books, most, head_dim]
    entries: Tensor  # int64 [books, most]: rows of x, of which sizes [books] are meant
    sizes: Tensor
    references: Tensor  # int64 [books, most]
    theta: float

    @classmethod
    def of_layers(cls, vectors: Sequence[Tensor], rows: Sequence[Rows], theta: float) -> list["Covered"]:
        """Codebooks of each layer's vectors [num_key_value_heads, n, head_dim], all found at the same time."""
        x = [side.flatten(0, 1)[own.index].float() for side, own in zip(vectors, rows, strict=True)]
        longest = max(own.index.shape[1] for own in rows)
        counts = [F.pad(own.counts, (0, longest - own.counts.shape[1])) for own in rows]
        padded = [F.pad(own, (0, 0, 0, longest - own.shape[1])) for own in x]
        books = [len(own.lengths) for own in rows]
        found = greedy_covers(
            torch.cat(padded), torch.cat([own.lengths for own in rows]), torch.cat(counts), float(theta)
        )
        by_layer = zip(x, *(part.split(books) for part in found), strict=True)
        return [
            cls(own, entries[:, : own.shape[1]], sizes, references[:, : own.shape[1]], theta)
            for own, entries, sizes, references in by_layer
        ]

    def packed(
        self, lengths: list[int], sizes: list[int], tokens: list[int], reconstruct: bool, dtype: torch.dtype
    ) -> Side:
        """`lengths` and `sizes` of the books, `tokens` of the streams."""
        entries = pack((x[chosen[:size]] for x, chosen, size in zip(self.x, self.entries, sizes, strict=True)), self.x)
        magnitudes = None
        if reconstruct:
            entries = F.normalize(entries, dim=-1)
            magnitudes = pack(first(self.x, lengths), self.x).norm(dim=-1).to(dtype)
        references = pack(first(self.references, lengths), self.references).split(tokens)
        return Side(entries.to(dtype), self.sizes.clone(), sizes, list(references), magnitudes, bound(self.theta))


def compact(mask: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Positions of the true elements of each row of mask [rows, n], ascending, and how many there are.

    [rows, most] and [rows]; behind them come false elements. No wait, as the size does not depend on the data.
    """
    order = mask.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    return order[:, :most], mask.sum(dim=1)


def first(x: Tensor, lengths: Iterable[int]) -> list[Tensor]:
    """The first lengths[b] of x[b]."""
    return [row[:length] for row, length in zip(x, lengths, strict=True)]


def pack(parts: Iterable[Tensor], like: Tensor) -> Tensor:
    """The parts one after the other, of the shape of `like` [books, most, …] without books."""
    return torch.cat([like.new_empty(0, *like.shape[2:]), *parts])


def shape_of_streams(wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What to know of each stream's tokens, from wanted [streams, query heads, n]; each is bool [streams].

    Whether they are 0 … tokens-1; whether they are those of the stream before; whether every query head wants all.
    """
    kept = wanted.any(dim=1)
    numbers = torch.arange(1, kept.shape[1] + 1, device=kept.device)
    lengths = kept.sum(dim=1)
    run = (kept * numbers).amax(dim=1) == lengths
    same = (kept == kept.roll(1, dims=0)).all(dim=1)
    same[0] = False
    return run, same, wanted.sum(dim=(1, 2)) == lengths * wanted.shape[1]


def pack_streams(wanted: Tensor, tokens: list[Tensor], run: list[int], same: list[int], everyone: list[int]) -> Streams:
    """Positions and bits of wanted [streams, query heads, n], whose streams have these tokens; see shape_of_streams."""
    n, lengths = wanted.shape[2], [len(t) for t in tokens]
    positions, offsets, held = [], [], 0
    for number, own in enumerate(tokens):
        if run[number]:
            offsets.append(-1)
        elif same[number]:
            offsets.append(offsets[-1])  # one set for several streams is stored once
        else:
            positions.append(own)
            offsets.append(held)
            held += len(own)
    packed = torch.cat(positions).to(smallest_integer(n - 1)) if positions else None
    bits, places, held = [], [], 0
    for number, own in enumerate(tokens):
        if everyone[number]:
            places.append(-1)
        else:
            bits.append(pack_bits(wanted[number].index_select(1, own)).flatten())
            places.append(held)
            held += len(bits[-1])
    return Streams(lengths, packed, offsets, torch.cat(bits) if bits else None, places)


def pack_raw(keys: Tensor, values: Tensor, order: Tensor, windows: list[int]) -> Raw:
    """The first windows[h] rows `order` [num_key_value_heads, w] of keys and values [num_key_value_heads, w, d]."""
    chosen = first(order, windows)
    packed = (torch.cat([x[own] for x, own in zip(side, chosen, strict=True)]) for side in (keys, values))
    return Raw(*packed, windows)
