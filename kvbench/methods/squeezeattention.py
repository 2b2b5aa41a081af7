"""SqueezeAttention (Wang et al. 2024, arXiv 2404.04793): layers whose attention changes little keep fewer tokens."""

import math
from collections.abc import Sequence
from dataclasses import field
from statistics import fmean
from typing import ClassVar, Literal

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.allocation.base import largest_remainder
from kvbench.methods.base.method import Method
from kvbench.methods.storage.base import KeptLayer, refuse_joint
from kvbench.methods.streaming_llm import StreamingLLM
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.checked import Share, checked

CLUSTERS = 3


@checked
class SqueezeAttention(Method):
    """A budget per layer from its hidden states, then any token policy within each layer (Wang et al. 2024, arXiv
    2404.04793).

    In each layer the cosine of the hidden states before and after attention is averaged over the prompt. The means of
    the m layers are divided into three clusters, by exact clustering; the released code starts k-means at random. The
    n3 layers of the most similar cluster get a fraction p3 of the prompt, all others (m·ini - n3·p3) / (m - n3), where
    ini is the requested share of FullKV. Largest remainders round the budgets, so they sum to m times the requested
    budget.

    p3        fraction of the prompt, as in the code for Llama-2 (0.25 with ini 0.4); at most ini, and at least the
              tokens that the policy always keeps. null: `squeeze` times ini. The code for Mistral has 0.08 with ini
              0.21, of 8,000 tokens whatever the prompt.
    squeeze   p3 / ini, for any ratio; 0.625 is the code's setting for Llama-2.
    surplus   what happens to tokens of the other layers beyond the prompt's length. return: the squeezed layers get
              them. waste: they are lost, as in the code, so that r stays below the requested ratio.
    policy    compresses each layer to its budget: StreamingLLM as in the code for Llama-2 (there with decode=evict and
              rope=rolling; for Mistral without sinks and rolling), or any other method that gives all layers the same
              budget.
    """

    p3: Share | None = None
    squeeze: Share = 0.625
    surplus: Literal["return", "waste"] = "return"
    policy: Method = field(default_factory=StreamingLLM)

    # 1 took attention's output for what a layer adds, which Granite, GLM-4, LFM3, MiniCPM3 and others scale or norm
    version: ClassVar[int] = 2

    layerwise = False  # budgets depend on the states of all layers

    def __post_init__(self) -> None:
        name = type(self.policy).__name__
        if not self.policy.takes_budget:
            raise UserError(f"policy={name} takes no budget: there is nothing to divide between layers")
        if hasattr(self.policy, "storage"):
            refuse_joint(self.policy.storage, "SqueezeAttention")
        if not self.policy.divisible:
            raise UserError(
                f"policy={name} divides the budget between layers itself: SqueezeAttention needs a policy that gives "
                "every layer the same, for example StreamingLLM, or an Eviction with allocation Uniform"
            )
        when = getattr(self.policy, "decode_compression", None)
        if when is not None and (when.budget is not None or when.of != "prompt"):
            raise UserError(
                f"policy's decode_compression has budget={when.budget} and of={when.of}, but SqueezeAttention divides "
                "a share of the prompt between layers: it needs budget=null and of=prompt"
            )
        self.needs = Needs(hidden_similarity=True) | self.policy.needs
        self.compress_at = self.policy.compress_at
        self.full_cache_tokens = self.policy.full_cache_tokens

    @property
    def minimum_budget(self) -> int:
        return self.policy.minimum_budget

    def floor(self, n: int, num_layers: int) -> int:
        return self.policy.floor(n, num_layers)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return self.policy.least_share(element_bytes, layer)

    @property
    def unfolds(self) -> bool:
        return self.policy.unfolds

    @property
    def counts_groups(self) -> bool:
        return self.policy.counts_groups

    @property
    def batches(self) -> bool:
        return self.policy.batches

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        least = max(self.policy.least(layer, len(state.layers)) for layer in state.layers)
        budgets = self.budgets([_similarity(layer) for layer in state.layers], budget, state.n, least)
        return [
            self.layer_cache(layer, index, len(budgets), budgets[index]) for index, layer in enumerate(state.layers)
        ]

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        """The cache of one layer. `budget` is this layer's budget, which depends on all layers, not the mean."""
        return self.policy.compress_layer(layer, index, num_layers, budget)

    def budgets(self, similarities: Sequence[float], budget: int, n: int, least: int = 0) -> list[int]:
        """Tokens per layer at a mean of `budget` for a prompt of n tokens; more than n only with surplus=waste.

        least: tokens that the policy keeps of this prompt in any layer.
        """
        m = len(similarities)
        labels = cluster(similarities, CLUSTERS)
        squeezed = [label == max(labels) for label in labels]
        unsqueezed = m - sum(squeezed)
        if budget >= n or unsqueezed == 0:
            return [budget] * m
        requested = budget * self.squeeze if self.p3 is None else math.floor(self.p3 * n + 1e-9)
        smaller = min(max(requested, self.policy.floor(n, m), least), budget)
        if self.surplus == "return":
            smaller = max(smaller, (m * budget - unsqueezed * n) / (m - unsqueezed))
        larger = (m * budget - (m - unsqueezed) * smaller) / unsqueezed
        return largest_remainder([smaller if s else larger for s in squeezed], m * budget)


def cluster(values: Sequence[float], k: int) -> list[int]:
    """Labels 0 … k-1, ascending with the cluster means, of the k-means optimum in one dimension.

    Optimal clusters are runs of the sorted values, so dynamic programming over the last run is exact. With fewer than k
    distinct values each value is a cluster.
    """
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    k = min(k, len(set(values)))
    mean = fmean(values)
    x = [values[i] - mean for i in order]  # centred, to keep precision in the sums of squares
    sums, squares = [0.0], [0.0]
    for value in x:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def spread(i: int, j: int) -> float:
        """Sum of squared distances of x[i:j] from their mean."""
        return squares[j] - squares[i] - (sums[j] - sums[i]) ** 2 / (j - i)

    # best[c][j]: cost of x[:j] in c + 1 clusters, and the start of the last cluster
    best = [{j: (spread(0, j), 0) for j in range(1, len(x) + 1)}]
    for c in range(1, k):
        best.append({j: min((best[-1][i][0] + spread(i, j), i) for i in range(c, j)) for j in range(c + 1, len(x) + 1)})
    labels = [0] * len(x)
    end = len(x)
    for c in reversed(range(k)):
        start = best[c][end][1]
        for i in order[start:end]:
            labels[i] = c
        end = start
    return labels


def _similarity(layer: LayerState) -> float:
    assert layer.hidden_similarity is not None, "it is in `needs`"
    return layer.hidden_similarity
