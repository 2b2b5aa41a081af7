"""The codebook as a storage: any selection of tokens, held as entries, references and magnitudes."""

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import Literal

import torch

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept, RatioOver
from kvbench.errors import UserError
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.codebook.coding import Covered, CoveredLayer, cover, cover_bytes, read_sizes
from kvbench.methods.spindlekv.codebook.layer_cache import CodebookLayer
from kvbench.methods.spindlekv.codebook.packing import Packing
from kvbench.methods.spindlekv.codebook.sizes import Sizes
from kvbench.methods.spindlekv.layer_groups import layer_groups
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.models.latents import LATENTS
from kvbench.ops.rope import fixed_rotation
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Share, checked

ROWS = 32  # bytes that finding the rows to code takes for each token of a stream
PACKING = 12  # bytes that packing takes for each channel of a coded token


@checked
class Codebook(Storage):
    """SpindleKV's similarity-based token replacement (Tang et al. 2025, §3.4), without eviction.

    theta_k, theta_v   cosine above which a key before RoPE, or a value, may be represented by another; 1 merges only
                       vectors of equal direction.
    scope              the heads that share a codebook. kv_group: a KV head with all its query heads. layer: all heads.
                       head: each query head has a codebook if query heads select separately.
    reconstruct        true: every vector's magnitude is stored. false: a vector is read as its entry (table 6).
    window             the prompt's last tokens that stay uncompressed if all heads of a group keep them; 0: they are
                       coded, too. The paper does not say.
    ratio_over         the vectors that r1 and r2 count if query heads select separately. kv_heads: tokens that any head
                       of a group keeps, once per KV head, over the model's cache. query_heads: tokens of each head,
                       over the unfolded cache, as the paper defines it; copies merge unless scope=head, so r cannot
                       exceed r3 / g, which is less than the paper prints. r_bytes is the same.

    If query heads of a group select separately, degrees count every head's copy, as if unfolded. But a token's copies
    share one reference and one magnitude, stored once per KV head with a bit per query head (scope=head stores them
    once per query head).
    Ties go to the lowest KV head, then position. Raw vectors count as entries in r2.
    """

    short = values(window=8)
    never_full = "coded"

    theta_k: Share = 0.98
    theta_v: Share = 0.95
    scope: Literal["kv_group", "layer", "head"] = "kv_group"
    reconstruct: bool = True
    window: NonNegative = 32
    ratio_over: RatioOver = "kv_heads"

    takes_ragged = groups_layers = True

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        return self.store_all([layer], [selection])[0]

    def store_all(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[LayerCache]:
        return [*self.pack_all(self.cover_all(layers, selections))]

    def most_share(self, tokens: int) -> float:
        return 1.05  # magnitudes and references, if no vectors merge

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """The share of a reference of one byte and a magnitude: similar vectors need few entries."""
        if layer is None:
            return 0.0
        return min((1 + element_bytes * self.reconstruct) / (layer.head_dim * element_bytes), 1.0)

    @property
    def unfolds(self) -> bool:
        return self.scope == "head"

    @property
    def counts_groups(self) -> bool:
        return self.ratio_over == "kv_heads"

    def cover_all(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[CoveredLayer]:
        """The contents and sizes of the caches of all layers, not packed yet, a group of layers at a time.

        One wait for each device of the layers.
        """
        pairs = list(zip(layers, selections, strict=True))
        sizes = [self._cover_bytes(layer, selection) for layer, selection in pairs]
        kinds = [(kind(layer), selection.heads(layer)) for layer, selection in pairs]
        groups = [self._cover(layers[part], selections[part]) for part in layer_groups(layers, sizes, kinds)]
        for _, covered in groupby(groups, lambda group: group.layers[0].keys.device):
            read_sizes(list(covered))
        places = [(group, place) for group in groups for place in range(len(group.layers))]
        return [self._covered(*where, selection) for where, selection in zip(places, selections, strict=True)]

    def pack_all(self, covered: Sequence[CoveredLayer]) -> list[CodebookLayer]:
        """The caches of covered layers, a group of layers at a time."""
        sizes = [sum(cover.sizes.tokens) * PACKING * cover.layer.keys.shape[2] for cover in covered]
        kinds = [(kind(cover.layer), cover.selected.shape) for cover in covered]
        packed = (self._pack(covered[part]) for part in layer_groups([cover.layer for cover in covered], sizes, kinds))
        return [cache for caches in packed for cache in caches]

    def _cover_bytes(self, layer: LayerState, selection: Selection) -> int:
        streams = layer.num_attention_heads if self.scope == "head" else layer.num_key_value_heads
        books, streams_of_a_book = (1, streams) if self.scope == "layer" else (streams, 1)
        vectors = streams_of_a_book * min(layer.n, selection.longest(layer) * layer.num_attention_heads // streams)
        return books * cover_bytes(vectors, layer.keys.shape[2]) + streams * layer.n * ROWS

    def _cover(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> Covered:
        """Find the codebooks of layers of one kind."""
        for layer in layers:
            fixed_rotation(layer.rope, "a codebook of keys before RoPE")
            _check_heads(layer)
        masks = [selection.mask(layer) for layer, selection in zip(layers, selections, strict=True)]
        longest = max(selection.longest(layer) for layer, selection in zip(layers, selections, strict=True))
        return cover(layers, torch.stack(masks), self.window, self.scope, longest, (self.theta_k, self.theta_v))

    def _covered(self, group: Covered, place: int, selection: Selection) -> CoveredLayer:
        layer, sizes = group.layers[place], group.sizes[place]
        _, n, d = layer.keys.shape
        nbytes = sizes.nbytes(n, d, layer.keys.element_size(), self.reconstruct)
        return group.layer(place, self._kept(layer, selection, sizes), nbytes)

    def _pack(self, covered: Sequence[CoveredLayer]) -> list[CodebookLayer]:
        """The caches of layers of one kind."""
        packing = Packing(covered)
        keys, values = packing.keys(self.theta_k, self.reconstruct), packing.values(self.theta_v, self.reconstruct)
        parts = zip(keys, values, packing.streams(), packing.raw(), covered, strict=True)
        return [
            CodebookLayer(k, v, streams, raw, packing.n, cover.kept, packing.rope)
            for k, v, streams, raw, cover in parts
        ]

    def _kept(self, layer: LayerState, selection: Selection, sizes: Sizes) -> Kept:
        """Formula 15 for one layer, over query heads or over KV heads.

        r3 as printed, (d + index bits / (key bits + 1)) / d, with the actual width of references.
        """
        unfolded = self.ratio_over == "query_heads" and selection.heads(layer) > layer.num_key_value_heads
        retained = sizes.retained(unfolded)
        pairs = sum(retained)
        # over query heads the pairs of every head count, copies included
        coded = sum(sizes.heads if unfolded else sizes.tokens)
        vectors = sum(sizes.keys) + sum(sizes.values) + 2 * sum(sizes.windows)
        width = sizes.reference_bytes() / max(2 * sum(sizes.tokens), 1)
        size, d = layer.keys.element_size(), layer.keys.shape[2]
        per_coded = (width / size + self.reconstruct) / d
        return Kept(
            selection.nominal,
            2 * pairs,
            2 * len(retained) * layer.n,
            r2=vectors / max(2 * pairs, 1),
            r3=1 + 8 * width / (8 * size + 1) / d,
            overhead=per_coded * coded / max(pairs, 1),
            positions=selection.positions(layer),
            ratio_over="query_heads" if unfolded else "kv_heads",
            per_head=tuple(retained) if selection.ragged else None,
        )


def _check_heads(layer: LayerState) -> None:
    """Raise UserError for latents, and if values have another width than keys: both are coded by the same kernels."""
    if layer.latents is not None or layer.headless:
        raise UserError(f"{LATENTS}: a codebook codes those of heads, and both in the same width")
    keys, values = layer.keys.shape[2], layer.values.shape[2]
    if keys != values:
        raise UserError(f"a codebook needs values as wide as keys: this model has {values} and {keys} channels")


def kind(layer: LayerState) -> Hashable:
    """The properties that layers must have in common to be processed together."""
    return layer.keys.device, layer.keys.dtype, layer.keys.shape, layer.num_attention_heads, layer.rope
