"""xKV: low-rank keys and values of several layers, which share one matrix of tokens."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.coded.layer import BlockwiseLayer
from kvbench.cache.coded.low_rank import LowRankSequence, thin_factors, thin_share
from kvbench.cache.coded.positions import KeyPositions
from kvbench.errors import UserError
from kvbench.methods.facts import Launches
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage, check_same_tokens
from kvbench.methods.storage.key_positions import key_positions
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, Share, checked


@checked
class XKV(Storage):
    """xKV (Chang et al. 2025, arXiv 2503.18893): adjacent layers' keys, before RoPE, and values in a common low rank.

    The vectors of a group's layers, side by side, are decomposed after prefill (§4): one matrix [tokens, rank] for all
    layers, and a basis [rank, channels] for each layer. Decoded tokens stay uncompressed, as in the released code.

    layers                 number of layers that are decomposed together; the last group may have fewer.
    key_rank, value_rank   shares of the channels of a group's layers; the paper's 512 and 768 of 4,096.

    The singular value decomposition comes from the eigenvectors of the channels' products, in float64. The common
    matrix is on the device of the group's lowest layer and is counted with this layer. Positions are stored if tokens
    are dropped.
    """

    never_full = "in a low rank"
    launches = Launches(decode=80)  # restores rows, a block at a time

    joint: ClassVar[bool] = True

    layers: Positive = 4
    key_rank: Share = 0.125
    value_rank: Share = 0.1875

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        raise UserError("XKV decomposes several layers together: it cannot store one layer at a time")

    def store_all(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[LayerCache]:
        caches: list[LayerCache] = []
        for start in range(0, len(layers), self.layers):
            group = slice(start, start + self.layers)
            for place in range(start, min(start + self.layers, len(layers)) - 1):
                check_same_tokens(place, selections[place : place + 2], "XKV decomposes each token with")
            caches += self._store_group(layers[group], selections[group])
        return caches

    def most_share(self, tokens: int) -> float:
        return 1 + 32 / tokens  # the bases are as large as 32 raw tokens

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """The mean over the layers that are decomposed together."""
        ranks = self.key_rank, self.value_rank
        if layer is None or not layer.tokens:
            return min(ranks) / 2  # ranks are rounded down to whole numbers, at least 1
        together = min(self.layers, layer.num_layers - layer.index // self.layers * self.layers)
        channels = together * layer.heads * layer.head_dim
        return sum(thin_share(rank, channels, layer.tokens) for rank in ranks) / 2

    def _store_group(self, layers: Sequence[LayerState], selections: Sequence[Selection]) -> list[LayerCache]:
        rows = [selection.of(layer.keys) for layer, selection in zip(layers, selections, strict=True)]
        positions = [key_positions(*each, "XKV") for each in zip(layers, selections, strict=True)]
        before = [position.undo(x.float(), 0) for position, x in zip(positions, rows, strict=True)]
        keys = self._sequences(before, self.key_rank, layers, positions)
        rows = [selection.of(layer.values).float() for layer, selection in zip(layers, selections, strict=True)]
        values = self._sequences(rows, self.value_rank, layers, [None] * len(layers))
        shares = [sum(sequence.share for sequence in part) / len(layers) for part in (keys, values)]
        size = layers[0].mean_share(*shares)
        return [
            BlockwiseLayer(k, v, layer.n, selection.kept(layer, r3=size))
            for k, v, layer, selection in zip(keys, values, layers, selections, strict=True)
        ]

    def _sequences(
        self,
        rows: Sequence[Tensor],
        share: float,
        layers: Sequence[LayerState],
        positions: Sequence[KeyPositions | None],
    ) -> list[LowRankSequence]:
        """One sequence for the float32 rows [heads, k, head_dim] of each layer."""
        dtype, device = layers[0].keys.dtype, rows[0].device
        left, rights = thin_factors([x.transpose(0, 1).flatten(1).to(device) for x in rows], share)
        left = left.to(dtype)[None]
        sequences = []
        for place, (x, right, of_keys) in enumerate(zip(rows, rights, positions, strict=True)):
            common = left.to(x.device)
            basis = right.to(x.device, dtype)[None].clone(memory_format=torch.contiguous_format)
            sequences.append(LowRankSequence(common, basis, place == 0 or common is not left, len(x), of_keys))
        return sequences
