"""Layers cut again after every further layer, for budgets that depend on the weights of all layers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.methods.allocation.weighted import WeightedAllocation
from kvbench.methods.base.layer_stream import LayerStream
from kvbench.methods.budgets import Budgets
from kvbench.methods.eviction.decode_compression import DecodeCompression
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState


class Weighed(Protocol):
    """The attributes of an `Eviction` with a weighted allocation that the cascade uses."""

    scoring: Scoring
    budgets: Budgets
    decode_compression: DecodeCompression | None

    def with_budgets(self, budgets: Budgets) -> "Weighed": ...

    def scores(self, layer: LayerState, window: int) -> Tensor: ...

    def select(self, layer: LayerState, index: int, num_layers: int, budget: int) -> Selection: ...

    def layer_cache(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache: ...


class Cascade(LayerStream):
    """CAKE's and LAVa's cascade: after each layer, all layers read so far are cut to the bounds of their final budgets.

    It holds about the budget of all layers, the layer that is being read, and the scores of all tokens in float32,
    which are counted, too. The caches equal those of `compress`, bit for bit.
    """

    def __init__(self, method: Weighed, allocation: WeightedAllocation, num_layers: int, budget: int) -> None:
        super().__init__()
        self.method, self.allocation = method, allocation
        self.num_layers, self.budget = num_layers, budget
        self.weights: list[float] = []
        self.held: list[HeldLayer] = []

    def take(self, layer: LayerState) -> None:
        whole = self.budget >= layer.n
        if whole and self.method.decode_compression is None:  # there is nothing to divide
            self.caches.append(self._compressed(self.method, layer, len(self.caches)))
            return
        window = self.method.scoring.window_of(self.budget)
        scores = self.method.scores(layer, window) if layer.n > window else layer.keys.new_zeros(0)
        self.held.append(HeldLayer(layer.stored, scores))
        self.weights.append(self.method.budgets.weight(layer, window, lambda: scores).item())
        if whole:  # what decoding drops is divided by the weights of all layers
            return
        bounds = self.allocation.bounds(self.weights, self.budget, layer.n, window, self.num_layers)
        # every layer keeps a token at least, and its smaller budget may round up to one token more in a head
        means = [max(bound, 1) for bound in bounds]
        roomy = self.method.with_budgets(replace(self.method.budgets, means=means, spare=1))
        for index, held in enumerate(self.held):
            held.cut(roomy.select(held.state, index, self.num_layers, self.budget).mask(held.state).any(dim=1))

    def finish(self, count: Callable[[LayerState], object]) -> None:
        final = self.method.with_budgets(replace(self.method.budgets, weights=self.weights))
        while self.held:
            layer = self.held[0].whole()
            count(layer)
            del self.held[0]
            self.caches.append(self._compressed(final, layer, len(self.caches)))
            count(layer)
            del layer

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), *(tensor for held in self.held for tensor in held.tensors())]

    def _compressed(self, method: Weighed, layer: LayerState, index: int) -> LayerCache:
        return method.layer_cache(layer, index, self.num_layers, self.budget)


class HeldLayer:
    """The tokens of one layer that have not been dropped, and the scores of all its tokens."""

    def __init__(self, layer: LayerState, scores: Tensor) -> None:
        """scores [heads that select, n - window]: the method's scores of this layer."""
        self.rows = torch.ones(layer.keys.shape[:2], dtype=torch.bool, device=layer.keys.device)
        self.keys, self.values = (x.flatten(0, 1) for x in (layer.keys, layer.values))  # [held tokens, head_dim]
        keys, values = (x.new_zeros(1).expand(x.shape) for x in (layer.keys, layer.values))  # shapes, of no bytes
        self.state = replace(layer, keys=keys, values=values, scores=scores)

    def cut(self, rows: Tensor) -> None:
        """Drop the tokens that are not in rows, bool [num_key_value_heads, n]."""
        stay = rows[self.rows]
        self.rows, self.keys, self.values = self.rows & rows, self.keys[stay], self.values[stay]

    def whole(self) -> LayerState:
        """The layer with all its tokens; dropped tokens are zeros."""
        keys, values = (x.new_zeros(x.shape) for x in (self.state.keys, self.state.values))
        keys[self.rows], values[self.rows] = self.keys, self.values
        return replace(self.state, keys=keys, values=values)

    def tensors(self) -> list[Tensor]:
        return [self.keys, self.values, self.rows, self.state.scores]
