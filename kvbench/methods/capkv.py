"""CapKV's score: the leverage of a token's value, weighted by the attention that future queries are expected to pay."""

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.ops.leverage import ridge_leverage
from kvbench.ops.rope import fixed_rotation, mean_rotation
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked

FLOOR = 1e-6  # added to weights in the matrix of capacity, as in kvpress


@checked
class CapKV(Scoring):
    """Capacity-aware scores (Yang et al. 2026, CapKV, arXiv 2604.25975).

    The kept tokens should have the largest possible log det(I + Σ w_i v_i v_iᵀ). A greedy approximation scores a token
    by its weighted leverage among all tokens,

        s_j = w_j · v_jᵀ (I + Σ_i w_i v_i v_iᵀ)⁻¹ v_j,    w_j = exp(tau · (cos(μ, k_j) − max_i cos(μ, k_i))).

    μ is the prompt's mean query before RoPE, rotated by the mean rotation of the next `future` positions; keys are
    after RoPE. A KV head's score is the mean over its query heads. Source: CapPress in kvpress, which takes cosines
    where the paper has dot products. In float64, by a Cholesky factor.

    tau      how strongly a token's weight depends on its key.
    sinks    first tokens, which are always kept and excluded from the mean and the sum.
    future   positions after the prompt whose rotations are averaged.
    """

    tau: PositiveNumber = 5.0
    sinks: NonNegative = 4
    future: Positive = 512

    per_query_head = False

    @cached_property
    def needs(self) -> Needs:
        return Needs(query_moments=frozenset([self.sinks]))

    def votes(self, layer: LayerState) -> Tensor:
        scores = torch.zeros(layer.num_key_value_heads, layer.n, device=layer.keys.device)
        if layer.n > self.sinks:
            values = layer.values[:, self.sinks :].double()
            heads = [weights * leverage(values, weights + FLOOR) for weights in self.weights(layer).unbind(dim=1)]
            scores[:, self.sinks :] = torch.stack(heads).mean(dim=0)
        return self.keep_sinks(scores)

    def weights(self, layer: LayerState) -> Tensor:
        """The weights w of the tokens after the sinks, float64 [num_key_value_heads, group, n - sinks]."""
        rope = fixed_rotation(layer.rope, "CapKV")
        head_dim = layer.keys.shape[2]
        future = range(layer.seen, layer.seen + self.future)
        turn = mean_rotation(rope, future, head_dim, layer.keys.device)
        mean = (layer.query_moments[self.sinks].mean @ turn).unflatten(0, (layer.num_key_value_heads, -1))
        keys = layer.keys[:, self.sinks :].double()
        cosines = F.normalize(mean.double(), dim=-1) @ F.normalize(keys, dim=-1).mT
        return (self.tau * (cosines - cosines.amax(dim=-1, keepdim=True))).exp()


def leverage(values: Tensor, weights: Tensor) -> Tensor:
    """v_jᵀ (I + Σ w_i v_i v_iᵀ)⁻¹ v_j of values [heads, n, head_dim] with weights [heads, n]: [heads, n]."""
    return ridge_leverage(values, (values * weights[..., None]).mT @ values, 1)
