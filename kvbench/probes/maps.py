"""Attention maps by layer, small enough to keep (SimLayerKV, figure 2; PyramidKV, figure 2)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvbench.ops.attention import causal_probabilities
from kvbench.prefill import LayerState, Needs
from kvbench.probes.base import ALL, TILE, Probe, checked_layers, true_or_false
from kvbench.utils.validation import at_least


@dataclass
class AttentionMap(Probe):
    """Attention of stretches of queries to stretches of tokens, mean over heads, [bins, bins].

    The n tokens are parted in min(bins, n) stretches that differ in length by one at most. A value is the share of
    its attention that a query of the row's stretch gives to the column's, mean over those queries: rows sum to 1.
    """

    layers: list[int] | None = None
    bins: int = 64
    answer: bool = True
    answered: bool = field(init=False)
    needs = Needs(window=ALL)
    axes = "map"

    def __post_init__(self):
        at_least("bins", self.bins, 1)
        true_or_false("answer", self.answer)
        self.layers = checked_layers(self.layers)
        self.answered = self.answer

    @property
    def quantity(self) -> str:
        return "share of the query's attention"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        bins = min(self.bins, layer.n)
        device = layer.keys.device
        stretch = torch.repeat_interleave(
            torch.arange(bins, device=device),
            torch.tensor([len(part) for part in torch.arange(layer.n).tensor_split(bins)], device=device),
        )
        total = torch.zeros(bins, bins, device=device)
        for rows, keys in zip(layer.queries.unflatten(0, (layer.num_key_value_heads, -1)), layer.keys, strict=True):
            for start in range(0, layer.n, TILE):
                end = min(start + TILE, layer.n)
                attention, _ = causal_probabilities(rows[:, start:end], keys[:end], start, layer.scaling)
                columns = torch.zeros(end - start, bins, device=device)
                columns.index_add_(1, stretch[:end], attention.sum(dim=0))
                total.index_add_(0, stretch[start:end], columns)
        return total / layer.num_attention_heads / stretch.bincount()[:, None]
