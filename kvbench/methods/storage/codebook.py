"""The codebook as a storage: any selection of tokens, held as entries, references and magnitudes."""

from typing import Literal

import torch

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
from kvbench.ops.rope import fixed_rotation
from kvbench.ops.rope_table import rope_table
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Share, checked


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
        rope = fixed_rotation(layer.rope, "a codebook of keys before RoPE")
        table = rope_table(rope, layer.keys.shape[2])
        heads, n, dtype = layer.num_key_value_heads, layer.n, layer.keys.dtype
        wanted = selection.mask(layer)  # [kv, group, n]
        unfolded = self.ratio_over == "query_heads" and selection.heads(layer) > heads
        # tokens of each head of ratio_over; over KV heads those that any head of the group keeps
        retained = (wanted.sum(dim=2) if unfolded else wanted.any(dim=1).sum(dim=1)).flatten()
        late = min(self.window, n)
        raw = wanted[:, :, n - late :].all(dim=1)  # [kv, late]
        wanted[:, :, n - late :] &= ~raw[:, None]
        if self.scope == "head":
            wanted = wanted.flatten(0, 1)[:, None]
        books = 1 if self.scope == "layer" else len(wanted)
        rows = Rows.of(wanted, books, heads, min(n, wanted.shape[1] * selection.longest(layer)))
        positions = torch.arange(n, device=layer.keys.device)
        keys = Covered.of(rope.rotate(layer.keys.float(), -positions), rows, self.theta_k)
        values = Covered.of(layer.values, rows, self.theta_v)
        order, windows = compact(raw, late)

        known = read(
            retained, rows.counts.sum(), wanted.any(dim=1).sum(dim=1), rows.lengths, keys.sizes, values.sizes, windows,
            *shape_of_streams(wanted),
        )  # fmt: skip
        retained, (copies,), tokens, lengths, key_sizes, value_sizes, windows, *shape = known
        k = keys.packed(lengths, key_sizes, tokens, self.reconstruct, dtype)
        v = values.packed(lengths, value_sizes, tokens, self.reconstruct, dtype)
        k.entries = table.pair(k.entries)
        index = pack(first(rows.index, lengths), rows.index) % n
        streams = pack_streams(wanted, list(index.split(tokens)), *shape)
        kept_raw = pack_raw(layer.keys[:, n - late :], layer.values[:, n - late :], order, windows)
        kept_raw.keys = table.pair(kept_raw.keys)

        # over query heads every head's own pairs count, copies included
        coded = copies if unfolded else sum(tokens)
        kept = self._kept(layer, selection, (k, v), retained, coded, 2 * sum(windows), unfolded)
        return CodebookLayer(k, v, streams, kept_raw, n, kept, rope)

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
