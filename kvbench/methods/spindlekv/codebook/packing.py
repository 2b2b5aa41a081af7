"""From covers to the parts of codebook caches: made for several layers at once, then copied to separate memory."""

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.packed import flat_positions, offsets
from kvbench.methods.spindlekv.codebook.coding import CoveredLayer, compact, gathered, keys_before_rope
from kvbench.methods.spindlekv.codebook.side import Side
from kvbench.methods.spindlekv.codebook.streams import Raw, Streams
from kvbench.methods.spindlekv.ops.codebook_layout import WIDTHS, smallest_integer
from kvbench.methods.spindlekv.ops.greedy_cover import Covers
from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.ops.bits import pack_bits
from kvbench.ops.directions import bound
from kvbench.ops.rope import fixed_rotation


class Packing:
    """Packs covered layers of one kind: packed tensors hold all of them, one after the other."""

    def __init__(self, covered: Sequence[CoveredLayer]) -> None:
        self.covered = covered
        self.layers, self.sizes = [cover.layer for cover in covered], [cover.sizes for cover in covered]
        first = self.layers[0]
        self.n, self.dtype = first.n, first.keys.dtype
        self.rope = fixed_rotation(first.rope, "a codebook of keys before RoPE")
        self.table = rope_table(self.rope, first.keys.shape[2])
        self.most = [cover.index.shape[1] for cover in covered]
        self.tokens = [sum(sizes.tokens) for sizes in self.sizes]  # coded tokens of all streams of a layer
        self.lengths = [sizes.lengths for sizes in self.sizes]
        self.rows = self._first(self.lengths)  # indices of the coded tokens in the covers
        self.index = torch.cat([cover.index.flatten() for cover in covered])[self.rows]  # rows of a layer's vectors
        self.by_layer = self.index.split(self.tokens)

    def keys(self, theta: float, reconstruct: bool) -> list[Side]:
        covers, books = [cover.keys for cover in self.covered], [sizes.keys for sizes in self.sizes]
        x = keys_before_rope(self.layers, self.by_layer)
        return self._sides(x, covers, books, bound(theta), reconstruct, self.table.pair)

    def values(self, theta: float, reconstruct: bool) -> list[Side]:
        covers, books = [cover.values for cover in self.covered], [sizes.values for sizes in self.sizes]
        x = gathered([layer.values for layer in self.layers], self.by_layer).float()
        return self._sides(x, covers, books, bound(theta), reconstruct, lambda entries: entries)

    def _sides(
        self,
        x: Tensor,
        covers: list[Covers],
        books: list[list[int]],
        limit: float,
        reconstruct: bool,
        arranged: Callable[[Tensor], Tensor],
    ) -> list[Side]:
        """The sides of x float32 [coded tokens, head_dim]; books: the entries of each layer's books."""
        picked = torch.cat([cover.entries.flatten() for cover in covers])[
            self._first(books)
        ]  # indices within each book
        entries = x[picked + repeated(offsets(flat(self.lengths)), flat(books), x.device)]
        entries = arranged((F.normalize(entries, dim=-1) if reconstruct else entries).to(self.dtype))
        references = torch.cat([cover.references.flatten() for cover in covers])[self.rows]
        magnitudes = [None] * len(covers)
        if reconstruct:
            magnitudes = joined([[part] for part in x.norm(dim=-1).to(self.dtype).split(self.tokens)])
        sides = zip(
            joined([[part] for part in entries.split([sum(sizes) for sizes in books])]),
            joined([[cover.sizes] for cover in covers]),
            books,
            self._references(references, books),
            magnitudes,
            strict=True,
        )
        return [Side(*parts, limit) for parts in sides]

    def _references(self, references: Tensor, books: list[list[int]]) -> list[list[Tensor]]:
        """The references of each stream in the narrowest type for its book."""
        widths = [sizes.widths(entries) for sizes, entries in zip(self.sizes, books, strict=True)]
        narrow = {width: self._by_stream(references.to(WIDTHS[width])) for width in {*flat(widths)}}
        return [[narrow[width][place][stream] for stream, width in enumerate(row)] for place, row in enumerate(widths)]

    def streams(self) -> list[Streams]:
        positions = self._by_stream((self.index % self.n).to(smallest_integer(self.n - 1)))
        stored = joined([[row[s] for s in sizes.placed] for row, sizes in zip(positions, self.sizes, strict=True)])
        parts = zip(self.sizes, stored, self._bits(), strict=True)
        return [
            Streams(sizes.tokens, placed, sizes.position_offsets, bits, sizes.bit_offsets)
            for sizes, placed, bits in parts
        ]

    def _bits(self) -> list[Tensor | None]:
        """The bits of each layer: which coded tokens each head selects, for the streams whose heads differ."""
        widths = [[width for width in sizes.bit_widths for _ in range(sizes.group)] for sizes in self.sizes]
        if not any(flat(widths)):
            return [None] * len(widths)
        selected = torch.cat([cover.selected for cover in self.covered])  # [streams, query heads, n]
        kept = selected.any(dim=1)
        longest = max(max(sizes.tokens) for sizes in self.sizes)
        order, lengths = compact(kept, longest, torch.arange(self.n, device=kept.device).expand_as(kept))
        seen = selected.gather(2, order[:, None].expand(-1, selected.shape[1], -1))
        seen &= (torch.arange(longest, device=kept.device) < lengths[:, None])[:, None]
        bits = pack_bits(seen.flatten(0, 1))  # [streams · query heads, bytes]
        starts = [bits.shape[1] * row for row in range(len(bits))]
        bits = bits.flatten()[first_of_each(starts, flat(widths), bits.device)]
        return joined(
            [[part] if len(part) else [] for part in bits.split([sum(bytes_of_heads) for bytes_of_heads in widths])]
        )

    def raw(self) -> list[Raw]:
        windows = [sizes.windows for sizes in self.sizes]
        counts = [sum(of_heads) for of_heads in windows]
        raw = torch.stack([cover.raw for cover in self.covered])
        chosen = flat_positions(raw.flatten(), sum(counts))
        late = slice(self.n - raw.shape[2], self.n)
        keys = torch.stack([layer.keys[:, late] for layer in self.layers]).flatten(0, 2)[chosen]
        values = torch.stack([layer.values[:, late] for layer in self.layers]).flatten(0, 2)[chosen]
        sides = (joined([[part] for part in x.split(counts)]) for x in (self.table.pair(keys), values))
        return [Raw(*parts) for parts in zip(*sides, windows, strict=True)]

    def _first(self, counts: list[list[int]]) -> Tensor:
        """Indices of the first counts[i][b] elements of each book in the flattened [books, most] of all layers."""
        most = [width for width, books in zip(self.most, counts, strict=True) for _ in books]
        return first_of_each(offsets(most), flat(counts), self.layers[0].keys.device)

    def _by_stream(self, x: Tensor) -> list[list[Tensor]]:
        """x [coded tokens] of each stream of each layer."""
        parts = iter(x.split(flat(sizes.tokens for sizes in self.sizes)))
        return [[next(parts) for _ in sizes.tokens] for sizes in self.sizes]


def joined(lists: Sequence[Sequence[Tensor]]) -> list[Tensor | None]:
    """The parts of each list, concatenated in separate memory; None for an empty list.

    All lists are copied at once, because separate copies would each launch a kernel on a GPU.
    """
    outputs = [parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:]) if parts else None for parts in lists]
    targets: list[Tensor] = []
    for output, parts in zip(outputs, lists, strict=True):
        if output is not None:
            targets += output.split([len(part) for part in parts])
    if targets:
        torch._foreach_copy_([as_bytes(x) for x in targets], [as_bytes(part) for parts in lists for part in parts])
    return outputs


def as_bytes(x: Tensor) -> Tensor:
    """x as bytes if its dtype is uint16, which few kernels take; other dtypes unchanged."""
    return x.view(torch.uint8) if x.dtype == torch.uint16 else x


def first_of_each(starts: list[int], counts: list[int], device: torch.device) -> Tensor:
    """For each i in order, starts[i] and the counts[i] - 1 numbers after it: int64 [sum of counts]."""
    shifts = [start - held for start, held in zip(starts, offsets(counts), strict=True)]
    return repeated(shifts, counts, device) + torch.arange(sum(counts), device=device)


def repeated(numbers: list[int], counts: list[int], device: torch.device) -> Tensor:
    """numbers[i] repeated counts[i] times, for each i in order: int64 [sum of counts]. No wait."""
    both = torch.tensor([numbers, counts]).to(device, non_blocking=True)
    return both[0].repeat_interleave(both[1], output_size=sum(counts))


def flat(lists: Iterable[list[int]]) -> list[int]:
    return [number for part in lists for number in part]
