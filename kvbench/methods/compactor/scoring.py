"""Compactor: leverage of keys and non-causal attention, added."""

from dataclasses import astuple
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.methods.compactor.leverage import LeverageScore
from kvbench.methods.compactor.non_causal import NonCausalAttention
from kvbench.methods.facts import values
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import ranking, reduce_group
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked

COMPARED = 0.35  # the weight of leverage in `votes` if `blending` is null, where the weight depends on the budget
SMALLEST = 1e-6  # standard deviation, as in kvpress


class Parts(NamedTuple):
    """The two scores, [num_key_value_heads, len] each."""

    leverage: Tensor
    attention: Tensor


@checked
class Compactor(Scoring):
    """Compactor (Chari & Van Durme 2025, arXiv 2507.08143): `blending`·L + A for the tokens between sinks and window.

    L is the leverage score of the keys before RoPE (LeverageScore), A is non-causal attention (NonCausalAttention);
    both are standardised over all heads of the layer. The first `sinks` and last `window` tokens always stay and are
    excluded from both. Source: CompactorPress in kvpress, by the paper's author.

    blending  weight of leverage. null: the share of dropped tokens, as in kvpress; where heads or layers share a
              budget, their scores are compared with a weight of 0.35, because the shares are not known yet.
    block, filled   as in NonCausalAttention.
    sketch, seed    as in LeverageScore.
    """

    short = values(block=16)

    blending: Fraction | None = None
    block: Positive = 256
    filled: bool = False
    sketch: Positive = 48
    seed: NonNegative = 0
    sinks: NonNegative = 8
    window: NonNegative = 4

    per_query_head = False
    signed = True

    def __post_init__(self) -> None:
        self.leverage = LeverageScore(self.sketch, self.seed)
        self.attention = NonCausalAttention(self.block, self.filled)
        self.orders_by_scores = self.blending is not None
        self.reads_dropped = self.blending is None  # both parts are standardised over all tokens
        self.needs = Needs(block_sums=frozenset([self.attention.blocks(self.sinks, self.window)]))

    def votes(self, layer: LayerState) -> Tensor:
        return self.blended(layer, COMPARED if self.blending is None else self.blending)

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        if self.blending is not None:
            return order
        dropped = 1 - (torch.as_tensor(counts, device=scores.device).view(-1, 1) + window) / layer.n
        heads, length = scores.shape
        blended = reduce_group(self.blended(layer, dropped), heads, "mean")
        first = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, order[:, :sure], True)
        return ranking(blended[:, :length].masked_fill(first, float("inf")))

    def blended(self, layer: LayerState, weight: float | Tensor) -> Tensor:
        """weight·L + A of all tokens, float32 [num_key_value_heads, n]. Sinks have infinite scores, the window zeros.

        weight: a number, or one for each head [num_key_value_heads or 1, 1].
        """
        leverage, attention = layer.once(("compactor", *astuple(self)[1:]), lambda: self.parts(layer))
        scores = leverage.new_zeros(layer.num_key_value_heads, layer.n)
        scores[:, self.sinks : layer.n - self.window] = weight * leverage + attention
        return self.keep_sinks(scores)

    def parts(self, layer: LayerState) -> Parts:
        """Both scores of the tokens between sinks and window, standardised: [num_key_value_heads, len] each."""
        leverage = self.leverage.between(layer, self.sinks, self.window)
        attention = self.attention.between(layer, self.sinks, self.window)
        return Parts(standardised(leverage), standardised(reduce_group(attention, len(leverage), "mean")))


def standardised(scores: Tensor) -> Tensor:
    return (scores - scores.mean()) / scores.std().clamp_min(SMALLEST)
