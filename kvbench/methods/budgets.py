"""How many tokens each head of each layer keeps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation, checked_tokens, with_at_least
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.allocation.weighted import WeightedAllocation
from kvbench.methods.heads.base import HeadBudgets, HeadCounts, LayerBudget
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs


@dataclass
class Budgets:
    """Divides a mean budget between layers by `allocation`, and a layer's tokens between heads by `heads`.

    Some allocations and head budgets need the states of all layers of a prompt: `of_prompt` reads these states and
    returns budgets with `weights` or `counts`. `scoring` knows the tokens that every layer keeps.
    """

    allocation: Allocation
    heads: HeadBudgets
    scoring: Scoring
    weights: Sequence[float] | None = None  # of the prompt's layers, the lowest first
    counts: Sequence[Tensor] | None = None  # of each layer, int64 [heads]: tokens before the window
    means: Sequence[int] | None = None  # of each layer: tokens per head, the window included
    spare: int = 0  # extra tokens in each head, where heads have different numbers

    def __post_init__(self) -> None:
        self.of_layers = lru_cache(maxsize=8)(self._of_layers)  # every layer reads the same numbers

    def forget(self) -> None:
        """Divide the budget of the next prompt anew, even if it is as long as the last one: its time is measured."""
        self.of_layers.cache_clear()

    def check(self) -> None:
        """Raise UserError if the parts cannot be combined."""
        if self.heads.whole_model and not self.uniform:
            name = type(self.heads).__name__
            raise UserError(f"{name} divides the budget between layers, too: it needs allocation Uniform")
        if self.weighted is not None:
            self.weighted.check(self.scoring)

    @property
    def needs(self) -> Needs:
        return Needs() if self.weighted is None else self.weighted.needs

    @property
    def weighted(self) -> WeightedAllocation | None:
        """The allocation if it divides by weights of the layers, else None."""
        return self.allocation if isinstance(self.allocation, WeightedAllocation) else None

    @property
    def uniform(self) -> bool:
        """Whether the allocation gives every layer the same budget."""
        return isinstance(self.allocation, Uniform)

    @property
    def layerwise(self) -> bool:
        """Whether the numbers of a layer are known without the states of the other layers."""
        read = self.weights is not None or self.means is not None
        return read or (self.weighted is None and not self.heads.pools_layers)

    def of_prompt(
        self, layers: Sequence[LayerState], budget: int, scores: Callable[[LayerState, int], Tensor]
    ) -> "Budgets":
        """These budgets with the numbers that follow from the states of all layers. One wait for the device.

        scores(layer, window): a layer's scores of the tokens before the window.
        """
        window = self.scoring.window_of(budget)
        if self.weighted is not None:
            device = layers[0].keys.device
            weights = [self.weight(layer, window, partial(scores, layer, window)) for layer in layers]
            return replace(self, weights=torch.stack([x.to(device, non_blocking=True) for x in weights]).tolist())
        ranked = [scores(layer, window).sort(dim=-1, descending=True).values for layer in layers]
        counts = self.heads.pooled(ranked, budget, window, layers[0].n)
        means = [window + math.ceil(sum(row) / len(row)) for row in counts.tolist()]
        return replace(self, counts=counts.unbind(), means=means)

    def weight(self, layer: LayerState, window: int, scores: Callable[[], Tensor]) -> Tensor:
        """A layer's weight, for a weighted allocation. Layers of a prompt within the window, in which no token has a
        score, weigh the same. One whose weight is no finite number, as where a model overflows, weighs 0: its answer is
        refused whatever stays, and the run goes on.
        """
        assert self.weighted is not None, "only weighted allocations have weights"
        if layer.n <= window:
            return torch.ones((), dtype=torch.float64, device=layer.keys.device)
        return self.weighted.weight(layer, scores).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def of_heads(self, ranked: Tensor, tokens: int, layer: LayerState, index: int, budget: int) -> HeadCounts:
        """How many tokens before the window each head keeps in a layer of `tokens` per head. No wait for the device.

        ranked [heads, n - window]: the layer's scores, each row in descending order.
        """
        window, least = self.scoring.window_of(budget), self.scoring.least(layer)
        if self.counts is not None:
            return HeadCounts(self.counts[index].to(ranked.device, non_blocking=True), tokens, layer.n)
        shared = self.heads.shared(ranked, LayerBudget(tokens, window, least, budget), layer)
        if not self.spare or isinstance(shared.counts, int):
            return shared
        return shared._replace(counts=shared.counts + self.spare)

    def of_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> int:
        """Tokens per head of one layer, the mean over heads, window included."""
        least = max(self.scoring.window_of(budget) + self.scoring.least(layer), 1)
        return max(self.of_layers(budget, layer.n, num_layers, least)[index], least)

    def _of_layers(self, budget: int, n: int, num_layers: int, least: int = 1) -> Sequence[int]:
        """Tokens per head of each layer for a text of n > budget tokens, the window included; at least `least`.

        Raises UserError where the allocation gives a layer fewer than the window.
        """
        if self.means is not None:
            return self.means
        window = self.scoring.window_of(budget)
        if budget < window:
            tokens: Sequence[int] = [budget]
        elif self.weights is not None and self.weighted is not None:
            divided = self.weighted.divide(self.weights, budget, n, window)
            tokens = checked_tokens(self.weighted, divided, budget, num_layers)
        else:
            given = self.allocation.tokens(budget, n, window, num_layers)
            tokens = checked_tokens(self.allocation, given, budget, num_layers)
        if min(tokens) < window:
            raise UserError(
                f"a budget of {budget} leaves {min(tokens)} tokens to a layer, but {type(self.scoring).__name__} "
                f"always keeps the last {window}: the smallest budget is {self.scoring.minimum_budget}"
            )
        # an allocation that keeps to the budget has no layers that are whole whatever the others need
        return with_at_least(least, tokens, n if self.allocation.overspends else None)
