"""Palu: low-rank keys and values of groups of heads."""

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import BlockwiseLayer
from kvbench.cache.coded.low_rank import LowRankSequence, thin_factors, thin_share
from kvbench.cache.coded.positions import KeyPositions
from kvbench.methods.facts import Launches
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.methods.storage.by_head import by_head
from kvbench.methods.storage.key_positions import key_positions
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, Share, checked


@checked
class Palu(Storage):
    """Low-rank keys, before RoPE, and values of each group of heads, as in Palu (Chang et al. 2024, arXiv 2407.21118).

    A group of heads has one vector per token, stored as coordinates in a basis of the group. The number of coordinates
    is the share `rank` of the group's channels (G-LRD, §3.2). Decoded tokens stay uncompressed.

    rank    share of a group's channels.
    group   heads that share a basis; rounded down to a number that divides the heads of a layer.

    The paper decomposes the weights of the projections, offline and whitened by a calibration, searches ranks by Fisher
    information and can quantise the coordinates. Here the basis comes from a singular value decomposition of the kept
    prompt's vectors in each layer, its bytes are counted, and `rank` is the same in all layers.
    """

    never_full = "in a low rank"
    launches = Launches(decode=80, compress_waits=4)  # decompositions wait for the device to report convergence

    takes_ragged = True

    rank: Share = 0.5
    group: Positive = 4

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        positions = key_positions(layer, selection, "Palu")
        group = self._group(selection.heads(layer))
        rows = selection.of(layer.keys)
        keys = self._sequence(positions.undo(rows.float(), 0), group, rows.dtype, positions)
        values = self._sequence(selection.of(layer.values).float(), group, rows.dtype, None)
        kept = selection.kept(layer, r3=layer.mean_share(keys.share, values.share))
        return BlockwiseLayer(keys, values, layer.n, kept)

    def most_share(self, tokens: int) -> float:
        return 1 + 32 / tokens  # the bases are as large as 32 raw tokens

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        if layer is None or not layer.tokens:
            return self.rank / 2  # the rank is rounded down to a whole number, at least 1
        return thin_share(self.rank, self._group(layer.heads) * layer.head_dim, layer.tokens)

    def _group(self, heads: int) -> int:
        return max(count for count in range(1, self.group + 1) if heads % count == 0)

    def _sequence(
        self, rows: Tensor, group: int, dtype: torch.dtype, positions: KeyPositions | None
    ) -> LowRankSequence:
        """The sequence of float32 rows [heads, k, head_dim]."""
        vectors = rows.unflatten(0, (-1, group)).transpose(1, 2).flatten(2)  # [groups, k, group · head_dim]
        parts = [thin_factors([matrix], self.rank) for matrix in vectors]
        left, right = torch.stack([left for left, _ in parts]), torch.stack([right for _, (right,) in parts])
        return LowRankSequence(left.to(dtype), right.to(dtype).contiguous(), True, len(rows), positions)
