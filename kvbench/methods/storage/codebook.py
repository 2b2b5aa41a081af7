"""The codebook as a storage: any selection of tokens, held as entries, references and magnitudes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import Kept, RatioOver
from kvbench.methods.ragged_selection import RaggedSelection
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage
from kvbench.methods.storage.codebook_coding import (
    Covered,
    Rows,
    compact,
    first,
    pack,
    pack_raw,
    pack_streams,
    shape_of_streams,
)
from kvbench.methods.storage.codebook_layer import CodebookLayer
from kvbench.methods.storage.codebook_side import Side
from kvbench.ops.read import read
from kvbench.ops.rope import Rope, fixed_rotation
from kvbench.ops.rope_table import rope_table
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Share, checked

# Bytes that finding codebooks takes on a GPU at a time: enough for all layers of a short prompt, to keep it busy.
AT_ONCE = 2**31


@dataclass
class Wanted:
    """What is to be coded of one layer."""

    layer: LayerState
    selection: Selection | RaggedSelection
    rope: Rope
    wanted: Tensor  # bool [streams, query heads, n]: the tokens in codebooks
    unfolded: bool  # whether ratios count query heads
    retained: Tensor  # int64 [heads that ratios count]: tokens kept
    rows: Rows
    order: Tensor  # [num_key_value_heads, window]: the last tokens, those first that stay as they are
    windows: Tensor  # int64 [num_key_value_heads]: how many these are

    @classmethod
    def of(cls, layer: LayerState, selection: Selection | RaggedSelection, how: "Codebook") -> "Wanted":
        rope = fixed_rotation(layer.rope, "a codebook of keys before RoPE")
        heads, n = layer.num_key_value_heads, layer.n
        wanted = selection.mask(layer)  # [kv, group, n]
        unfolded = how.ratio_over == "query_heads" and selection.heads(layer) > heads
        # tokens of each head of ratio_over; over KV heads those that any head of the group keeps
        retained = (wanted.sum(dim=2) if unfolded else wanted.any(dim=1).sum(dim=1)).flatten()
        late = min(how.window, n)
        raw = wanted[:, :, n - late :].all(dim=1)  # [kv, late]
        wanted[:, :, n - late :] &= ~raw[:, None]
        if how.scope == "head":
            wanted = wanted.flatten(0, 1)[:, None]
        books = 1 if how.scope == "layer" else len(wanted)
        rows = Rows.of(wanted, books, heads, min(n, wanted.shape[1] * selection.longest(layer)))
        return cls(layer, selection, rope, wanted, unfolded, retained, rows, *compact(raw, late))

    def keys_before_rope(self) -> Tensor:
        """float32 [num_key_value_heads, n, head_dim]."""
        positions = torch.arange(self.layer.n, device=self.layer.keys.device)
        return self.rope.rotate(self.layer.keys.float(), -positions)


@checked
class Codebook(Storage):
    """SpindleKV's similarity based token replacement (Tang et al. 2025, §3.4), by itself.

    theta_k, theta_v   cosine above which a key before RoPE, or a value, may be represented by another; 1 merges
                       nothing but vectors of equal direction.
    scope              what shares a codebook: kv_group, a KV head with all its query heads; layer, all heads;
                       head, where query heads select for themselves each has its own.
    reconstruct        true keeps every vector's magnitude; false reads the entry with its own (table 6).
    window             the prompt's last tokens that stay as they are, as far as all heads of a group keep
                       them; 0 codes them too. The paper does not say.
    ratio_over         where query heads select for themselves, the vectors that r1 and r2 count. kv_heads: tokens that
                       any head of a group kept, once per KV head, over the model's own cache. query_heads: each
                       head's own, over the unfolded cache, as the paper's definition says; copies merge, so r cannot
                       exceed r3 / g there, less than the paper prints. r_bytes is the same.

    Where query heads of a group select for themselves, the degrees count every head's copy, as if unfolded.
    But a token's copies share one reference and one magnitude, stored once per KV head with a bit per query head
    (scope=head stores them once per query head).
    Ties go to the lowest KV head, then position. Raw vectors count as entries in r2.
    """

    theta_k: Share = 0.98
    theta_v: Share = 0.95
    scope: Literal["kv_group", "layer", "head"] = "kv_group"
    reconstruct: bool = True
    window: NonNegative = 32
    ratio_over: RatioOver = "kv_heads"

    takes_ragged = True

    def store(self, layer: LayerState, selection: Selection | RaggedSelection) -> CodebookLayer:
        return self.store_all([layer], [selection])[0]

    def store_all(
        self, layers: Sequence[LayerState], selections: Sequence[Selection | RaggedSelection]
    ) -> list[CodebookLayer]:
        """The caches of all layers; on a GPU the codebooks of as many layers as `AT_ONCE` allows at the same time."""
        caches, sizes = [], [self._cover_bytes(*each) for each in zip(layers, selections, strict=True)]
        devices = [layer.keys.device for layer in layers]
        for group in groups(sizes, devices, AT_ONCE if layers and layers[0].keys.is_cuda else 0):
            caches += self._store_together(layers[group], selections[group])
        return caches

    def _cover_bytes(self, layer: LayerState, selection: Selection | RaggedSelection) -> int:
        streams = layer.num_attention_heads if self.scope == "head" else layer.num_key_value_heads
        books, streams_of_a_book = (1, streams) if self.scope == "layer" else (streams, 1)
        vectors = streams_of_a_book * min(layer.n, selection.longest(layer) * layer.num_attention_heads // streams)
        return books * cover_bytes(vectors, layer.keys.shape[2])

    def _store_together(
        self, layers: Sequence[LayerState], selections: Sequence[Selection | RaggedSelection]
    ) -> list[CodebookLayer]:
        wanted = [Wanted.of(layer, selection, self) for layer, selection in zip(layers, selections, strict=True)]
        rows = [own.rows for own in wanted]
        keys = Covered.of_layers([own.keys_before_rope() for own in wanted], rows, self.theta_k)
        values = Covered.of_layers([layer.values for layer in layers], rows, self.theta_v)
        known = [
            (own.retained, own.rows.counts.sum(), own.wanted.any(dim=1).sum(dim=1), own.rows.lengths, k.sizes, v.sizes,
             own.windows, *shape_of_streams(own.wanted))
            for own, k, v in zip(wanted, keys, values, strict=True)
        ]  # fmt: skip
        numbers = iter(read(*(value for of_layer in known for value in of_layer)))
        return [
            self._cache(own, k, v, [next(numbers) for _ in of_layer])
            for own, k, v, of_layer in zip(wanted, keys, values, known, strict=True)
        ]

    def _cache(self, own: Wanted, keys: Covered, values: Covered, known: list[list[int]]) -> CodebookLayer:
        layer, n, dtype = own.layer, own.layer.n, own.layer.keys.dtype
        retained, (copies,), tokens, lengths, key_sizes, value_sizes, windows, *shape = known
        table = rope_table(own.rope, layer.keys.shape[2])
        k = keys.packed(lengths, key_sizes, tokens, self.reconstruct, dtype)
        v = values.packed(lengths, value_sizes, tokens, self.reconstruct, dtype)
        k.entries = table.pair(k.entries)
        index = pack(first(own.rows.index, lengths), own.rows.index) % n
        streams = pack_streams(own.wanted, list(index.split(tokens)), *shape)
        late = slice(n - own.order.shape[1], n)
        kept_raw = pack_raw(layer.keys[:, late], layer.values[:, late], own.order, windows)
        kept_raw.keys = table.pair(kept_raw.keys)

        # over query heads every head's own pairs count, copies included
        coded = copies if own.unfolded else sum(tokens)
        kept = self._kept(layer, own.selection, (k, v), retained, coded, 2 * sum(windows), own.unfolded)
        return CodebookLayer(k, v, streams, kept_raw, n, kept, own.rope)

    def _kept(
        self,
        layer: LayerState,
        selection: Selection | RaggedSelection,
        sides: tuple[Side, Side],
        retained: list[int],
        coded: int,
        raw: int,
        unfolded: bool,
    ) -> Kept:
        """Formula 15 for one layer, over query heads if `unfolded`, else over KV heads.

        `retained` tokens of each head, `coded` of all in codebooks; `raw` vectors are stored as they are. r3 as
        printed, (d + index bits / (key bits + 1)) / d, with the width that references really have.
        """
        pairs = sum(retained)
        heads = layer.num_attention_heads if unfolded else layer.num_key_value_heads
        entries = sum(len(side.entries) for side in sides)
        width = sum(side.references.nbytes for side in sides) / max(sum(side.count for side in sides), 1)
        size, d = layer.keys.element_size(), layer.keys.shape[2]
        per_coded = (width / size + self.reconstruct) / d
        return Kept(
            selection.nominal,
            2 * pairs,
            2 * heads * layer.n,
            r2=(entries + raw) / (2 * pairs),
            r3=1 + 8 * width / (8 * size + 1) / d,
            overhead=per_coded * coded / pairs,
            positions=selection.positions(layer),
            ratio_over="query_heads" if unfolded else "kv_heads",
            per_head=tuple(retained) if isinstance(selection, RaggedSelection) else None,
        )


def cover_bytes(vectors: int, head_dim: int) -> int:
    """What finding one codebook takes while it lasts: neighbours in bits, vectors in float32, int32 and two float16."""
    return vectors * (vectors // 8 + 12 * head_dim)


def groups(sizes: Sequence[int], devices: Sequence[torch.device], most: int) -> list[slice]:
    """Neighbouring layers on one device whose bytes, `sizes`, add up to at most `most`, or one layer that has more."""
    parts, start, held = [], 0, 0
    for index, size in enumerate(sizes):
        if index > start and (held + size > most or devices[index] != devices[start]):
            parts.append(slice(start, index))
            start, held = index, 0
        held += size
    return [*parts, slice(start, len(sizes))] if sizes else []
