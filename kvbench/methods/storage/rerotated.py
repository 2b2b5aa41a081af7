"""Keys rotated to the positions that the kept tokens have among themselves."""

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.methods.ragged_selection import RaggedSelection
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage, alike
from kvbench.ops.rope import Rope, fixed_rotation
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class Rerotated(Storage):
    """Keys and values in the model's dtype, keys rotated as if the kept tokens had followed each other from position 0.

    A head's i-th kept token, of position p, is stored as R(i - p)k. Source: Corallo & Papotti 2024, Finch (arXiv
    2408.00167), as kvpress's KeyRerotationPress does it after any scorer. Later tokens have their true positions there
    and here, so that they stand farther from the prompt than they would in a text of the kept tokens.
    """

    def store(self, layer: LayerState, selection: Selection | RaggedSelection) -> LayerCache:
        selection = alike(selection)
        rope = fixed_rotation(layer.rope, "Rerotated")
        keys, values, kept = selection.of(layer.keys), selection.of(layer.values), selection.kept(layer)
        if selection.indices is not None:
            keys = closed_up(keys, selection.indices, rope)
        return DenseLayer(keys, values, layer.n, kept)


def closed_up(keys: Tensor, indices: Tensor, rope: Rope) -> Tensor:
    """Keys [heads, k, head_dim] of positions indices [heads or 1, k], rotated to positions 0 … k-1."""
    heads, k, _ = keys.shape
    moves = torch.arange(k, device=indices.device) - indices.expand(heads, -1)
    return rope.rotate(keys.flatten(0, 1)[None], moves.flatten())[0].unflatten(0, (heads, k))
