"""How much of a layer's attention stays on sinks and recent tokens (SimLayerKV, figures 4 and 7)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvbench.methods.selection import sinks_and_recent
from kvbench.methods.simlayerkv import check_lazy
from kvbench.ops.attention import attention_mass, causal_probabilities
from kvbench.prefill import LayerState, Needs
from kvbench.probes.base import ALL, TILE, Probe, checked_layers, true_or_false
from kvbench.utils.validation import at_least


@dataclass
class LazyMass(Probe):
    """SimLayerKV's p: attention that goes to `sinks` first and `window` last tokens, [num_attention_heads].

    variant="prefill"  eq. 1: mean over the last `w_last` prompt queries, the tokens fixed at the prompt's end.
    variant="decode"   eq. 2: the first decoded token's query, itself one of the window.

    A layer is lazy where the mean over heads exceeds `delta`, which figures draw; nothing here depends on it.
    """

    variant: str = "prefill"
    sinks: int = 4
    window: int = 1024
    w_last: int = 32
    delta: float | None = None
    needs: Needs = field(init=False)
    answered: bool = field(init=False)

    def __post_init__(self):
        check_lazy(self, "draw none")
        self.answered = self.variant == "decode"
        self.needs = Needs(window=ALL if self.answered else self.w_last)

    @property
    def quantity(self) -> str:
        who = "first decoded token" if self.answered else f"last {self.w_last} queries"
        return f"attention of the {who} to {self.sinks} first and {self.window} last tokens"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        end = prompt + self.answered  # tokens that the last query sees
        queries = layer.queries[:, :end] if self.answered else layer.queries
        queries = queries[:, -1 if self.answered else -self.w_last :].contiguous()
        chosen = sinks_and_recent(end, self.sinks, self.window, layer.keys.device)[0]
        return attention_mass(queries, layer.keys[:, :end], layer.scaling, chosen).mean(dim=-1).clamp(0, 1)


@dataclass
class LazyTokens(Probe):
    """Attention that each token gives to the first `sinks` and its own last `window` tokens, mean over heads.

    The prompt's tokens come as means of `bins` stretches of about equal length (all of them where they are fewer),
    the answer's one by one: [min(bins, prompt) + answer].
    """

    sinks: int = 4
    window: int = 1024
    bins: int = 128
    answer: bool = True
    layers: list[int] | None = None
    answered: bool = field(init=False)
    needs = Needs(window=ALL)
    axes = "tokens"

    def __post_init__(self):
        at_least("sinks", self.sinks, 0)
        at_least("window", self.window, 1)
        at_least("bins", self.bins, 1)
        true_or_false("answer", self.answer)
        self.layers = checked_layers(self.layers)
        self.answered = self.answer

    @property
    def quantity(self) -> str:
        return f"attention to the first {self.sinks} and last {self.window} tokens"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        mass = torch.zeros(layer.n, device=layer.keys.device)
        positions = torch.arange(layer.n, device=layer.keys.device)
        for rows, keys in zip(layer.queries.unflatten(0, (layer.num_key_value_heads, -1)), layer.keys, strict=True):
            for start in range(0, layer.n, TILE):
                end = min(start + TILE, layer.n)
                attention, _ = causal_probabilities(rows[:, start:end], keys[:end], start, layer.scaling)
                back = positions[start:end, None] - positions[:end]  # [t, end]
                near = (back < self.window) | (positions[:end] < self.sinks)
                mass[start:end] += attention.sum(dim=0).masked_fill_(~near, 0).sum(dim=-1)
        mass /= layer.num_attention_heads
        return torch.cat([binned(mass[:prompt], self.bins), mass[prompt:]])


def binned(values: Tensor, bins: int) -> Tensor:
    """Means of at most `bins` stretches of values [n], which differ in length by one at most."""
    return torch.stack([part.mean() for part in values.tensor_split(min(bins, len(values)))])
