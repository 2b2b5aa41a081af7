"""The codebook as a storage: any selection of tokens, held as entries, references and magnitudes."""

from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import Kept, RatioOver
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage
from kvbench.methods.storage.codebook_layer import Book, CodebookLayer, Coded, Stream, smallest_integer
from kvbench.ops.bits import pack_bits
from kvbench.ops.greedy_cover import greedy_cover
from kvbench.ops.rope import fixed_rotation
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

    def store(self, layer: LayerState, selection: Selection) -> CodebookLayer:
        rope = fixed_rotation(layer.rope, "a codebook of keys before RoPE")
        wanted = kept_mask(layer, selection)  # [kv, group, n]
        retained = int(wanted.any(dim=1).sum())  # (KV head, token) pairs that any head of the group keeps
        raw = wanted.all(dim=1)  # [kv, n]
        raw[:, : max(layer.n - self.window, 0)] = False
        wanted &= ~raw[:, None]
        heads = torch.arange(len(wanted), device=wanted.device)
        if self.scope == "head":
            heads, wanted = heads.repeat_interleave(wanted.shape[1]), wanted.flatten(0, 1)[:, None]
        tokens = [w.any(dim=0).nonzero().squeeze(1) for w in wanted]
        counts = [w[:, t].sum(dim=0) for w, t in zip(wanted, tokens, strict=True)]

        positions = torch.arange(layer.n, device=layer.keys.device)
        plain = rope.rotate(layer.keys.float(), -positions)
        dtype = layer.keys.dtype
        keys = self._code([plain[h, t] for h, t in zip(heads, tokens, strict=True)], counts, self.theta_k, dtype)
        values = self._code(
            [layer.values[h, t] for h, t in zip(heads, tokens, strict=True)], counts, self.theta_v, dtype
        )
        streams: list[Stream] = []
        for parts in zip(keys, values, tokens, wanted, strict=True):
            streams.append(_stream(*parts, layer.n, streams[-1] if streams else None))
        raw_keys = [k[r] for k, r in zip(layer.keys, raw, strict=True)]
        raw_values = [v[r] for v, r in zip(layer.values, raw, strict=True)]
        unfolded = self.ratio_over == "query_heads" and selection.heads(layer) > layer.num_key_value_heads
        if unfolded:  # every head's own pairs, copies included
            retained, coded = selection.heads(layer) * selection.count(layer), int(sum(c.sum() for c in counts))
        else:
            coded = sum(len(t) for t in tokens)
        kept = self._kept(layer, selection, streams, retained, coded, 2 * int(raw.sum()), unfolded)
        return CodebookLayer(streams, raw_keys, raw_values, layer.n, kept, rope)

    def _code(self, vectors: list[Tensor], counts: list[Tensor], theta: float, dtype: torch.dtype) -> list[Coded]:
        """Vectors [len, head_dim] of every stream, in a book each, or in one book for all with scope=layer."""
        if self.scope != "layer":
            return [self._code_together([x], [c], theta, dtype)[0] for x, c in zip(vectors, counts, strict=True)]
        return self._code_together(vectors, counts, theta, dtype)

    def _code_together(
        self, vectors: list[Tensor], counts: list[Tensor], theta: float, dtype: torch.dtype
    ) -> list[Coded]:
        x = torch.cat(vectors).float()
        cover = greedy_cover(x, theta, torch.cat(counts))
        norms = x.norm(dim=-1)
        entries = x[cover.entries]
        if self.reconstruct:
            entries = torch.nn.functional.normalize(entries, dim=-1)
        book = Book(entries.to(dtype), theta)
        lengths = [len(v) for v in vectors]
        magnitudes = norms.to(dtype).split(lengths) if self.reconstruct else [None] * len(lengths)
        return [Coded(book, r, m) for r, m in zip(cover.references.split(lengths), magnitudes, strict=True)]

    def _kept(
        self,
        layer: LayerState,
        selection: Selection,
        streams: list[Stream],
        retained: int,
        coded: int,
        raw: int,
        unfolded: bool,
    ) -> Kept:
        """Formula 15 for one layer, over query heads if `unfolded`, else over KV heads.

        `retained` (head, token) pairs, `coded` of them in codebooks; `raw` vectors are stored as they are. r3 as
        printed, (d + index bits / (key bits + 1)) / d, with the width that references really have.
        """
        heads = layer.num_attention_heads if unfolded else layer.num_key_value_heads
        sides = [side for stream in streams for side in (stream.keys, stream.values)]
        books = {id(side.book): len(side.book) for side in sides}
        width = sum(s.references.buffer.nbytes for s in sides) / max(sum(s.references.length for s in sides), 1)
        size, d = layer.keys.element_size(), layer.keys.shape[2]
        per_coded = (width / size + self.reconstruct) / d
        return Kept(
            selection.nominal,
            2 * retained,
            2 * heads * layer.n,
            r2=(sum(books.values()) + raw) / (2 * retained),
            r3=1 + 8 * width / (8 * size + 1) / d,
            overhead=per_coded * coded / retained,
            positions=selection.positions(layer),
            ratio_over="query_heads" if unfolded else "kv_heads",
        )


def kept_mask(layer: LayerState, selection: Selection) -> Tensor:
    """Which tokens the selecting heads keep, bool [num_key_value_heads, heads that select per KV head, n]."""
    heads, indices = layer.num_key_value_heads, selection.indices
    if indices is None:
        return torch.ones(heads, 1, layer.n, dtype=torch.bool, device=layer.keys.device)
    mask = torch.zeros(len(indices), layer.n, dtype=torch.bool, device=indices.device)
    mask.scatter_(1, indices, True)
    return mask.expand(max(len(mask), heads), -1).clone().unflatten(0, (heads, -1))


def _stream(keys: Coded, values: Coded, tokens: Tensor, wanted: Tensor, n: int, previous: Stream | None) -> Stream:
    """One stream of prompt tokens [len]; `wanted` [heads, n] says who keeps what."""
    count = len(tokens)
    positions = None
    if count and int(tokens[-1]) != count - 1:  # a run from 0 on needs no positions
        positions = tokens.to(smallest_integer(n - 1))
        if previous is not None and previous.positions is not None and positions.equal(previous.positions):
            positions = previous.positions  # one set for the layer: stored once
    mask = wanted[:, tokens]
    return Stream(keys, values, count, positions, None if mask.all() else pack_bits(mask))
