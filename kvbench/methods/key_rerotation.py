"""Keys rotated so that the kept tokens follow each other without a gap."""

from typing import ClassVar

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.ops.rope import Rope, fixed_rotation
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class Rerotated(Storage):
    """Keys and values in the model's dtype, keys rotated as if the kept tokens followed each other without a gap.

    The i-th of a head's k kept keys, at position p of a prompt of n tokens, is rotated by n - k + i - p positions, so
    that the last kept token is right before the next token at position n. Source: Corallo & Papotti 2024, Finch (arXiv
    2408.00167), as in kvpress's KeyRerotationPress, which combines with any scorer. In kvpress the kept tokens begin at
    position 0 and the next token has position k; here later tokens have their true positions. Rotary attention depends
    only on distances, which are equal.
    """

    batches = True
    version: ClassVar[int] = 2  # 1 closed up towards position 0, away from the next token

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        rope = fixed_rotation(layer.rope, "Rerotated")
        keys, values, kept = selection.of(layer.keys), selection.of(layer.values), selection.kept(layer)
        if selection.indices is not None:
            keys = closed_up(keys, selection.indices, layer.n, rope)
        return DenseLayer(keys, values, layer.n, kept)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0


def closed_up(keys: Tensor, indices: Tensor, n: int, rope: Rope) -> Tensor:
    """Keys [heads, k, head_dim] at positions indices [heads or 1, k] below n, rotated to positions n-k … n-1."""
    heads, k, _ = keys.shape
    moves = torch.arange(n - k, n, device=indices.device) - indices.expand(heads, -1)
    return rope.rotate(keys.flatten(0, 1)[None], moves.flatten())[0].unflatten(0, (heads, k))
