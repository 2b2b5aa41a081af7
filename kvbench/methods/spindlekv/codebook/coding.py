"""From the tokens that heads select to codebooks as indices: several layers of one shape at once, not packed yet."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.spindlekv.codebook.sizes import Sizes
from kvbench.methods.spindlekv.layer_groups import set_groups
from kvbench.methods.spindlekv.ops.greedy_cover import Covers, greedy_covers
from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.methods.spindlekv.ops.turn_back import turn_back
from kvbench.ops.host_numbers import read
from kvbench.ops.rope import fixed_rotation
from kvbench.prefill import LayerState


@dataclass
class Rows:
    """The vectors to code, per book, ordered by KV head and position; the books of a layer one after the other."""

    index: Tensor  # int64 [books, most]: rows of a layer's vectors [num_key_value_heads · n, head_dim]; then zeros
    lengths: Tensor  # int64 [books]: how many rows before the zeros
    counts: Tensor  # int64 [books, most]: how many query heads select each row; then zeros

    @classmethod
    def from_counts(cls, counts: Tensor, books: int, heads: int, most: int) -> "Rows":
        """The rows for counts [layers, streams, n], the number of query heads that select each token.

        books: books of each layer. heads: KV heads of the streams. most: upper bound of a stream's tokens.
        """
        layers, streams, n = counts.shape
        all_rows = torch.arange(heads * n, device=counts.device).view(heads, 1, n)
        # several copies of a KV head's rows only if each stream has its own book
        all_rows = all_rows.expand(heads, streams // heads, n).reshape(books, -1).expand(layers, -1, -1)
        counts = counts.view(layers, books, -1)
        index, counts, lengths = compact(counts > 0, most * streams // books, all_rows, counts)
        return cls(index.flatten(0, 1), lengths.flatten(), counts.flatten(0, 1))


@dataclass
class Covered:
    """Codebooks of several layers of one kind: indices of the layers' vectors."""

    layers: Sequence[LayerState]
    selected: Tensor  # bool [layers, streams, query heads, n]: the tokens in codebooks
    raw: Tensor  # bool [layers, num_key_value_heads, window]: which of the last tokens are not coded
    rows: Rows
    keys: Covers
    values: Covers
    sizes: list[Sizes]  # of each layer

    def layer(self, place: int, kept: Kept, nbytes: int) -> "CoveredLayer":
        count = len(self.layers)
        index, *covers = (x.unflatten(0, (count, -1))[place] for x in (self.rows.index, *self.keys, *self.values))
        tokens = self.layers[place], self.selected[place], self.raw[place], index
        return CoveredLayer(*tokens, Covers(*covers[:3]), Covers(*covers[3:]), self.sizes[place], kept, nbytes)


@dataclass(eq=False)
class CoveredLayer:
    """One layer's part of `Covered`, and the retained tokens and bytes of its cache."""

    layer: LayerState
    selected: Tensor  # bool [streams, query heads, n]
    raw: Tensor  # bool [num_key_value_heads, window]
    index: Tensor  # int64 [books, most], as in `Rows`
    keys: Covers
    values: Covers
    sizes: Sizes
    kept: Kept
    nbytes: int


def cover(
    layers: Sequence[LayerState], masks: Tensor, window: int, scope: str, most: int, thetas: tuple[float, float]
) -> Covered:
    """Codebooks of the tokens in masks, bool [layers, num_key_value_heads, heads that select per KV head, n].

    `masks` is overwritten. No head selects more than `most` tokens. `sizes` is empty until `read_sizes`.
    """
    heads, n = masks.shape[1], masks.shape[3]
    late = masks[..., n - min(window, n) :]
    raw = late.all(dim=2)
    late.masked_fill_(raw[:, :, None], False)
    selected = masks.flatten(1, 2)[:, :, None] if scope == "head" else masks
    counts = selected.sum(dim=2)
    books = 1 if scope == "layer" else selected.shape[1]
    rows = Rows.from_counts(counts, books, heads, min(n, most * selected.shape[2]))
    index = rows.index.view(len(layers), -1)

    def covered(x: Tensor, theta: float) -> Covers:
        x = x.view(*rows.index.shape, x.shape[-1])
        parts = set_groups(len(x), cover_bytes(*x.shape[1:]), x.device)
        covers = [greedy_covers(x[part], rows.lengths[part], rows.counts[part], float(theta)) for part in parts]
        return covers[0] if len(covers) == 1 else Covers(*map(torch.cat, zip(*covers, strict=True)))

    keys = covered(keys_before_rope(layers, index), thetas[0])
    values = covered(gathered([layer.values for layer in layers], index), thetas[1])
    return Covered(layers, selected, raw, rows, keys, values, [])


def read_sizes(covered: Sequence[Covered]) -> None:
    """The sizes of covers on one device, with one wait for it."""
    unread = [_size_tensors(group) for group in covered]
    numbers = iter(read(*(part for parts in unread for part in parts)))
    for group, parts in zip(covered, unread, strict=True):
        count = len(group.layers)
        of_layers = [_parted(next(numbers), count) for _ in parts]
        group.sizes = [Sizes(*of_layer) for of_layer in zip(*of_layers, strict=True)]


def _size_tensors(group: Covered) -> list[Tensor]:
    """The numbers of `Sizes`, each for all layers."""
    count, heads = group.raw.shape[:2]
    kept = group.selected.any(dim=2)  # [layers, streams, n]
    union = kept if kept.shape[1] == heads else kept.view(count, heads, -1, kept.shape[2]).any(dim=2)
    return [
        group.selected.sum(dim=3),
        union.sum(dim=2),
        group.raw.sum(dim=2),
        group.keys.sizes,
        group.values.sizes,
        (kept[..., 1:] > kept[..., :-1]).any(dim=2),
        (kept[:, 1:] == kept[:, :-1]).all(dim=2),
    ]


def _parted(numbers: list[int], count: int) -> list[list[int]]:
    """The numbers of each of `count` layers, equally many per layer."""
    size = len(numbers) // count
    return [numbers[place * size : (place + 1) * size] for place in range(count)]


def gathered(sides: Sequence[Tensor], index: Sequence[Tensor]) -> Tensor:
    """Rows index [len] of each layer's vectors [num_key_value_heads, n, head_dim], one layer after the other."""
    out = sides[0].new_empty(sum(len(rows) for rows in index), sides[0].shape[2])
    for side, rows, to in zip(sides, index, out.split([len(rows) for rows in index]), strict=True):
        torch.index_select(side.flatten(0, 1), 0, rows, out=to)
    return out


def keys_before_rope(layers: Sequence[LayerState], index: Sequence[Tensor]) -> Tensor:
    """The rows of `gathered` of the layers' keys before RoPE, float32."""
    keys, n = layers[0].keys, layers[0].n
    rope = fixed_rotation(layers[0].rope, "a codebook of keys before RoPE")
    table = rope_table(rope, keys.shape[2])
    positions = (index.flatten() if isinstance(index, Tensor) else torch.cat(index)) % n
    turns = table.turns(rope, n, keys.device)
    return turn_back(gathered([layer.keys for layer in layers], index), positions, turns, table.order_on(keys.device))


def cover_bytes(vectors: int, head_dim: int) -> int:
    """Working memory to find one codebook: neighbours in bits; vectors in float32, in int32 and twice in float16."""
    return vectors * (vectors // 8 + 12 * head_dim)


def compact(mask: Tensor, most: int, *values: Tensor) -> tuple[Tensor, ...]:
    """The elements of each of `values` [..., n] where mask [..., n] is true, in order, and their number.

    Shapes: [..., most], padded with zeros, and [...]. No wait for the device: shapes do not depend on the data.
    """
    places = mask.cumsum(dim=-1)
    slots = places * mask  # elements where the mask is false share slot 0, which is left out
    shape = *mask.shape[:-1], most + 1
    chosen = (value.new_zeros(shape).scatter_(-1, slots, value)[..., 1:].contiguous() for value in values)
    return *chosen, places[..., -1].contiguous()
