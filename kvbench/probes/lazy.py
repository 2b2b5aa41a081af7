"""The share of attention that goes to sinks and recent tokens (SimLayerKV, arXiv 2410.13846, figures 4 and 7)."""

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from kvbench.methods.selection import sinks_and_recent
from kvbench.ops.attention_mass import attention_mass
from kvbench.prefill import LayerState, Needs
from kvbench.probes.base import ALL, Layers, Probe
from kvbench.probes.every_query import tiles
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


@checked
class LazyMass(Probe):
    """SimLayerKV's score p: share of attention to the `sinks` first and `window` last tokens, [num_attention_heads].

    variant   prefill: equation 1, mean over the last `w_last` prompt queries, with the tokens fixed at the prompt's
              end. decode: equation 2, the first decoded token's query, which is itself one of the window.
    delta     threshold on the mean over heads above which a layer is lazy: a line in figures, or null for none. The
              values do not depend on it.
    """

    variant: Literal["prefill", "decode"] = "prefill"
    sinks: NonNegative = 4
    window: Positive = 1024
    w_last: Positive = 32
    delta: Fraction | None = None
    needs: Needs = field(init=False)
    answered: bool = field(init=False)

    def __post_init__(self) -> None:
        self.answered = self.variant == "decode"
        self.needs = Needs(window=ALL if self.answered else self.w_last)

    @property
    def quantity(self) -> str:
        who = "first decoded token" if self.answered else f"last {self.w_last} queries"
        return f"attention of the {who} to {self.sinks} first and {self.window} last tokens"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        end = prompt + self.answered  # tokens that the last query sees
        queries = layer.last_queries(ALL)[:, end - 1 : end] if self.answered else layer.last_queries(self.w_last)
        chosen = sinks_and_recent(end, self.sinks, self.window, layer.keys.device)[0]
        return attention_mass(queries.contiguous(), layer.keys[:, :end], layer.scaling, chosen).mean(dim=-1).clamp(0, 1)


@checked
class LazyTokens(Probe):
    """Share of attention that each token gives to the first `sinks` and its last `window` tokens, mean over heads.

    Values are [min(bins, prompt) + answer]: the prompt's tokens as means over at most `bins` intervals of about equal
    length, the answer's tokens one by one.

    answer   true: a pass over the prompt and FullKV's answer; false: over the prompt alone.
    layers   layers to observe, counted from 0; null for all.
    """

    sinks: NonNegative = 4
    window: Positive = 1024
    bins: Positive = 128
    answer: bool = True
    layers: Layers = None
    answered: bool = field(init=False)
    needs = Needs(window=ALL)
    axes = "tokens"

    def __post_init__(self) -> None:
        self.answered = self.answer

    @property
    def quantity(self) -> str:
        return f"attention to the first {self.sinks} and last {self.window} tokens"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        mass = torch.zeros(layer.n, device=layer.keys.device)
        positions = torch.arange(layer.n, device=layer.keys.device)
        for start, end, attention in tiles(layer):
            back = positions[start:end, None] - positions[:end]  # [t, end]
            near = (back < self.window) | (positions[:end] < self.sinks)
            mass[start:end] += attention.masked_fill_(~near, 0).sum(dim=-1)
        mass /= layer.num_attention_heads
        return torch.cat([binned(mass[:prompt], self.bins), mass[prompt:]])


def binned(values: Tensor, bins: int) -> Tensor:
    """Means of values [n] over at most `bins` intervals whose lengths differ by at most one: [min(bins, n)]."""
    return torch.stack([part.mean() for part in values.tensor_split(min(bins, len(values)))])
