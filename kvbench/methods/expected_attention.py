"""Expected Attention's score: the attention that future queries are expected to pay."""

from functools import cached_property

import torch
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.ops.rope import fixed_rotation, mean_rotation
from kvbench.ops.softmax import plain
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative, Number, Positive, checked

TILE = 2048  # keys whose quadratic form exists at a time: [num_attention_heads, TILE, head_dim]


@checked
class ExpectedAttention(Scoring):
    """Expected attention of future queries, times the norm of the value (Devoto et al. 2025, arXiv 2510.00636).

    Queries before RoPE are taken as Gaussian with the prompt's mean μ and covariance C. Future queries are rotated by
    R, the mean of the rotations of the next `future` positions, so that a key k (after RoPE) has the expected logit
    z = s·kᵀRμ + s²/2·kᵀRCRᵀk with the attention's scaling s. The score is (softmax(z) averaged over a group's query
    heads + epsilon)·‖v‖. Source: the paper's method section and the authors' implementation in kvpress.

    sinks        first tokens, which are always kept and excluded from the statistics.
    future       positions after the prompt whose rotations are averaged.
    epsilon      makes the value's norm decide where the expected attention is close to zero.
    covariance   false: the mean alone.
    value_norm   false: the expected attention alone, without epsilon.
    """

    sinks: NonNegative = 4
    future: Positive = 512
    epsilon: Number = 0.0
    covariance: bool = True
    value_norm: bool = True

    per_query_head = False

    @cached_property
    def needs(self) -> Needs:
        return Needs(query_moments=frozenset([self.sinks]))

    def votes(self, layer: LayerState) -> Tensor:
        attention = self.expected_logits(layer)[..., self.sinks :].softmax(dim=-1).mean(dim=1)
        scores = attention.new_zeros(layer.num_key_value_heads, layer.n)
        scores[:, self.sinks :] = attention + self.epsilon if self.value_norm else attention
        if self.value_norm:
            scores *= layer.values.float().norm(dim=-1)
        return self.keep_sinks(scores)

    def expected_logits(self, layer: LayerState) -> Tensor:
        """z, float32 [num_key_value_heads, group, n]."""
        rope = fixed_rotation(layer.rope, "Expected Attention")
        moments = layer.query_moments[self.sinks]
        heads, head_dim = layer.num_key_value_heads, layer.keys.shape[2]
        future = range(layer.seen, layer.seen + self.future)
        turn = mean_rotation(rope, future, head_dim, layer.keys.device)
        mean = (moments.mean @ turn).unflatten(0, (heads, -1))  # [num_key_value_heads, group, head_dim]
        keys = layer.keys.float()
        scaling = plain(layer.scaling)  # its expectation is of linear logits, without a model's soft cap or sinks
        logits = scaling * mean @ keys.mT
        if self.covariance:
            covariance = (turn.T @ moments.covariance @ turn).unflatten(0, (heads, -1))
            spread = [
                torch.einsum("kgtd,ktd->kgt", tile[:, None] @ covariance, tile) for tile in keys.split(TILE, dim=1)
            ]
            logits += scaling**2 / 2 * torch.cat(spread, dim=-1)
        return logits
