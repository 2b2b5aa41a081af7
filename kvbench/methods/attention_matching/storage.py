"""Attention Matching: kept keys with a bias and values fitted to the attention that reference queries pay to all."""

import math
from typing import NamedTuple

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.methods.attention_matching.fitting import Bias, check_bounds, mass_weights, masses, matched_values
from kvbench.methods.attention_matching.layer_cache import BiasedLayer
from kvbench.methods.facts import Launches, values
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.ops.attention import grouped_logits
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import NonNegative, Positive, PositiveNumber, checked


class Fit(NamedTuple):
    """The bias and the values with which kept keys stand for all keys."""

    bias: Tensor  # [k]
    values: Tensor  # [k, head_dim]


@checked
class Matched(Storage):
    """Kept keys stand for all keys between the sinks and the last tokens (Zweiger et al. 2026, arXiv 2602.16284).

    A bias for each kept key fits the attention mass of reference queries, Σ exp(logit + bias), to that of all keys;
    then new values fit their attention output to that of all keys. Both are least squares over the last `references`
    queries of the query heads that read a head's keys, as the released code solves them: the bias within bounds,
    followed by steps of projected gradient descent. With mass and output matched, attention over other tokens,
    including those decoded later, is unchanged.

    sinks, recent          first and last tokens, which are kept unchanged and without a bias.
    least_bias, most_bias  bounds of a bias: -3 and 3 with keys by attention, -7 and 7 with keys by matching pursuit.
    steps                  steps of projected gradient descent.
    ridge                  times the largest squared norm of a key's weights: keeps a fit defined where keys are alike
                           or outnumber the queries.
    """

    short = values(references=28, recent=8)
    launches = Launches(compress_waits=24)  # it fits the two heads one after the other

    references: Positive = 1024
    sinks: NonNegative = 4
    recent: NonNegative = 32
    least_bias: Bias = -3.0
    most_bias: Bias = 3.0
    steps: NonNegative = 2
    ridge: PositiveNumber = 1e-6

    batches = True
    reads_dropped = True  # kept tokens stand for all others

    def __post_init__(self) -> None:
        check_bounds(self.least_bias, self.most_bias)

    @property
    def needs(self) -> Needs:
        return Needs(window=self.references)

    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        if selection.indices is None:
            return DenseLayer(layer.keys, layer.values, layer.n, selection.kept(layer))
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        heads, k, head_dim = keys.shape
        bias = keys.new_zeros(heads, k)
        between = slice(self.sinks, max(layer.n - self.recent, self.sinks))
        queries = layer.last_queries(self.references).unflatten(0, (heads, -1)).flatten(1, 2)  # [heads, r, head_dim]
        for head, indices in enumerate(selection.indices.expand(heads, -1)):
            fitted = (indices >= between.start) & (indices < between.stop)
            chosen = indices[fitted] - between.start
            kv_head = head * layer.num_key_value_heads // heads
            context = layer.keys[kv_head, between], layer.values[kv_head, between]
            if 0 < len(chosen) < len(context[0]):
                bias[head, fitted], values[head, fitted] = self.fit(queries[head], *context, chosen, layer.scaling)
        kept = selection.kept(layer, r3=1 + 1 / (2 * head_dim))
        return BiasedLayer(keys, values, bias, layer.n, kept)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0  # biases come on top

    def fit(self, queries: Tensor, keys: Tensor, values: Tensor, chosen: Tensor, scaling: Scaling) -> Fit:
        """The bias and the values of the keys at `chosen` [k], in the dtype of keys.

        queries [r, head_dim]; keys, values [len, head_dim] of all tokens that the chosen keys stand for.
        """
        logits = grouped_logits(queries, keys, scaling)  # [r, len]
        mass = masses(logits)
        bounds = math.exp(self.least_bias), math.exp(self.most_bias)
        weights = mass_weights(mass[:, chosen], mass.sum(dim=1), *bounds, self.steps, self.ridge)
        bias = weights.log().to(keys.dtype)  # as it is stored: the values make up for its rounding
        outputs = logits.softmax(dim=1) @ values.float()
        fitted = matched_values(logits[:, chosen], bias, outputs, self.ridge)
        return Fit(bias, fitted.to(keys.dtype))
