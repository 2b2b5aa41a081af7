"""Attention maps by layer, small enough to keep (SimLayerKV, figure 2; PyramidKV, figure 2)."""

from dataclasses import field

import torch
from torch import Tensor

from kvbench.prefill import LayerState, Needs
from kvbench.probes.base import ALL, Layers, Probe
from kvbench.probes.every_query import tiles
from kvbench.utils.checked import Positive, checked


@checked
class AttentionMap(Probe):
    """Attention of intervals of queries to intervals of tokens, mean over heads, [min(bins, n), min(bins, n)].

    The n tokens are divided into min(bins, n) intervals whose lengths differ by at most one. A value is the share of
    attention of a query in the row's interval to the column's interval, mean over the queries: rows sum to 1, or to
    less where heads have sinks of their own (gpt-oss).

    answer   true: a pass over the prompt and FullKV's answer; false: over the prompt alone.
    layers   layers to observe, counted from 0; null for all.
    """

    layers: Layers = None
    bins: Positive = 64
    answer: bool = True
    answered: bool = field(init=False)
    needs = Needs(window=ALL)
    axes = "map"

    def __post_init__(self) -> None:
        self.answered = self.answer

    @property
    def quantity(self) -> str:
        return "share of the query's attention"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        bins = min(self.bins, layer.n)
        device = layer.keys.device
        interval = torch.repeat_interleave(
            torch.arange(bins, device=device),
            torch.tensor([len(part) for part in torch.arange(layer.n).tensor_split(bins)], device=device),
        )
        total = torch.zeros(bins, bins, device=device)
        for start, end, attention in tiles(layer):
            columns = torch.zeros(end - start, bins, device=device)
            columns.index_add_(1, interval[:end], attention)
            total.index_add_(0, interval[start:end], columns)
        return total / layer.num_attention_heads / interval.bincount()[:, None]
