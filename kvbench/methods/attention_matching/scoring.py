"""Attention Matching's choice of keys: the attention of reference queries, and matching pursuit of its mass."""

import math

import torch
from torch import Tensor

from kvbench.methods.attention_matching.fitting import Bias, check_bounds, masses, matching_pursuit
from kvbench.methods.facts import Launches, values
from kvbench.methods.scoring.base import Scoring
from kvbench.ops.attention import grouped_logits
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked


@checked
class ReferenceAttention(Scoring):
    """The root of the mean square of the attention of reference queries (Zweiger et al. 2026, arXiv 2602.16284).

    The reference queries are the last `references` queries of the prompt. Each attends to all tokens between the sinks
    and the window, later tokens included, because these are the tokens that Attention Matching replaces.

    window   last tokens that always stay.
    sinks    first tokens that always stay.
    """

    short = values(references=28, window=8)

    references: Positive = 1024
    window: NonNegative = 32
    sinks: NonNegative = 4

    while_decoding = False  # the references are queries of a prompt

    @property
    def needs(self) -> Needs:
        return Needs(window=self.references)

    def votes(self, layer: LayerState) -> Tensor:
        name = "reference attention", self.references, self.window, self.sinks
        return self.keep_sinks(layer.once(name, lambda: self._squares(layer)))

    def _squares(self, layer: LayerState) -> Tensor:
        """The mean square of each query head's attention, float32 [num_attention_heads, n]; 0 outside."""
        squares = layer.keys.new_zeros(layer.num_attention_heads, layer.n, dtype=torch.float32)
        between = slice(self.sinks, layer.n - self.window)
        group = layer.num_attention_heads // layer.num_key_value_heads
        for head, queries in enumerate(layer.last_queries(self.references)):
            logits = grouped_logits(queries, layer.keys[head // group, between], layer.scaling)
            squares[head, between] = logits.softmax(dim=1).square_().mean(dim=0)
        return squares

    def smooth(self, votes: Tensor) -> Tensor:
        return votes.sqrt()


@checked
class MatchingPursuit(ReferenceAttention):
    """Orthogonal matching pursuit (ibid.): chosen keys whose weighted masses add up to the mass of all keys.

    The mass of a key for a reference query is exp(logit) over the query's largest. All reference queries of a KV head's
    query heads have equal weight.

    step                   keys added before the weights are fitted again: 1 in the paper, 4 in its fast setting.
    least_bias, most_bias  logarithms of the bounds of a weight.
    ridge                  times the largest squared norm of a key's masses: keeps the fit defined where keys are alike.
    """

    launches = Launches(compress_waits=32)  # one head after the other, in steps of the pursuit

    step: Positive = 4
    least_bias: Bias = -7.0
    most_bias: Bias = 7.0
    ridge: PositiveNumber = 1e-6

    orders_by_scores = False
    reads_dropped = True

    def __post_init__(self) -> None:
        check_bounds(self.least_bias, self.most_bias)

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        heads = len(order)
        queries = layer.last_queries(self.references).unflatten(0, (heads, -1)).flatten(1, 2)
        keys = layer.keys[:, self.sinks : layer.n - window]
        tokens = [counts] * heads if isinstance(counts, int) else counts.tolist()
        pursued = order.clone()
        for head, row in enumerate(order):
            mass = masses(grouped_logits(queries[head], keys[head * len(keys) // heads], layer.scaling))
            first = row[self.sinks : max(sure, self.sinks)] - self.sinks  # sinks come first in `order`
            count = min(max(tokens[head] - self.sinks, len(first)), mass.shape[1])
            if count:
                bounds = math.exp(self.least_bias), math.exp(self.most_bias)
                chosen = matching_pursuit(mass, first, count, self.step, *bounds, self.ridge)
                rest = row[~torch.isin(row, chosen + self.sinks)]
                pursued[head] = torch.cat([rest[: self.sinks], chosen + self.sinks, rest[self.sinks :]])
        return pursued
