"""Leverage scores: how far a key lies from the span of the other keys."""

import numpy
import torch
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.ops.leverage import ridge_leverage
from kvbench.ops.rope import fixed_rotation
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Positive, checked

RIDGE = 1e-2  # added to the diagonal of the Gram matrix, as in kvpress


@checked
class LeverageScore(Scoring):
    """Approximate leverage of a key before RoPE (Chari & Van Durme 2025, Compactor, arXiv 2507.08143).

    X [n, sketch] is a head's keys before RoPE minus their mean, times a Gaussian matrix of variance 1/sketch. The score
    of token j is x_jᵀ(XᵀX + 0.01·I)⁻¹x_j, by a Cholesky factor as in kvpress's LeverageScorePress, in float64. The
    Gaussian numbers are drawn on the CPU from (seed, layer), so they are the same on every device.

    sketch   columns of X.
    seed     seed of the Gaussian matrix.
    sinks    first tokens that are always kept.
    window   last tokens that are always kept.
    """

    sketch: Positive = 48
    seed: NonNegative = 0
    sinks: NonNegative = 0
    window: NonNegative = 0

    per_query_head = False
    while_decoding = False  # the positions of the kept tokens are not known

    def votes(self, layer: LayerState) -> Tensor:
        return self.keep_sinks(self.between(layer, 0, 0))

    def between(self, layer: LayerState, skip: int, leave: int) -> Tensor:
        """Leverage of the tokens without the first `skip` and last `leave` ones, float32 [num_key_value_heads, len]."""
        rope = fixed_rotation(layer.rope, "LeverageScore")
        places = torch.arange(skip, layer.n - leave, device=layer.keys.device)
        keys = rope.rotate(layer.keys[:, skip : layer.n - leave], -places).double()
        sketch = self.matrix(layer.index, layer.num_key_value_heads, layer.keys.shape[2]).to(keys.device)
        return leverage(keys, sketch).float()

    def matrix(self, index: int, heads: int, head_dim: int) -> Tensor:
        """The Gaussian matrices of a layer's heads, float64 [heads, head_dim, sketch]."""
        drawn = numpy.random.default_rng([self.seed, index]).standard_normal((heads, head_dim, self.sketch))
        return torch.from_numpy(drawn) / self.sketch**0.5


def leverage(keys: Tensor, sketch: Tensor) -> Tensor:
    """Leverage [heads, n] of the centred keys [heads, n, head_dim] times sketch [heads, head_dim, k]."""
    x = (keys - keys.mean(dim=1, keepdim=True)) @ sketch
    return ridge_leverage(x, x.mT @ x, RIDGE)
