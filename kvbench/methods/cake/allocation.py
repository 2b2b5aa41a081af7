"""CAKE's allocation: more tokens for layers whose last queries spread their attention and shift it."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

from torch import Tensor

from kvbench.methods.allocation.base import largest_remainder, water_filled
from kvbench.methods.allocation.weighted import WeightedAllocation, shares
from kvbench.methods.facts import values
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import Positive, PositiveNumber, checked


@checked(frozen=True)
class Preference(WeightedAllocation):
    """CAKE (Qin et al. 2025, arXiv 2503.12491): layers share the budget in proportion to H^(1/tau1) · V^(1/tau2).

    H is the entropy of the last w queries' attention to the tokens before them, summed over queries and heads. V is the
    variance of each token's attention over these queries, summed over tokens and heads.

    window   w.
    tau1, tau2   temperatures of H and V. The released code sets them for five models at budgets of 128 and 1024, and to
             1 and 1 for all others.
    alloc    exact: tokens that a layer cannot hold go to the others until no share exceeds the prompt, and the shares
             sum to the budget.
             official: the released code. Shares are rounded down, the excess over the prompt is spread once, and any
             excess that is left is lost. After each layer the layers read so far divide the whole budget, and dropped
             tokens do not come back. Prompts of up to budget + w tokens stay whole.
    """

    short = values(window=8)

    window: Positive = 32
    tau1: PositiveNumber = 1.0
    tau2: PositiveNumber = 1.0
    alloc: Literal["exact", "official"] = "exact"

    @cached_property
    def needs(self) -> Needs:
        return Needs(window=self.window)

    @property
    def overspends(self) -> str:
        return "prompts of up to budget + window tokens stay whole" if self.alloc == "official" else ""

    def weight(self, layer: LayerState, scores: Callable[[], Tensor]) -> Tensor:
        moments = layer.window_moments(self.window)
        entropy = moments.entropy.double().sum()
        variance = moments.variance[:, : max(layer.n - self.window, 0)].double().sum()
        return entropy ** (1 / self.tau1) * variance ** (1 / self.tau2)

    def divide(self, weights: Sequence[float], budget: int, n: int, window: int) -> list[int]:
        if self.alloc == "exact":
            total = len(weights) * (budget - window)
            filled = water_filled(shares(weights, total), n - window)
            return [share + window for share in largest_remainder(filled, total)]
        return self.bounds(weights, budget, n, window, len(weights))

    def bounds(self, weights: Sequence[float], budget: int, n: int, window: int, num_layers: int) -> list[int]:
        m, most, mean = len(weights), n - window, budget - window
        total = num_layers * mean
        if self.alloc == "exact":
            # A layer's share falls with every further layer. Tokens that other layers cannot hold are divided equally
            # between all layers that can hold more, so a layer gets at most their mean in addition.
            return [min(int(part + mean) + 1, most) + window for part in shares(weights, total)]
        if n <= budget + window:
            return [n] * m
        limits = [most] * m
        for layer in range(m):
            so_far = spread_once(shares(weights[: layer + 1], total), total, most)
            limits[: layer + 1] = map(min, limits, so_far)
        return [share + window for share in limits]


def spread_once(exact: Sequence[float], total: int, most: int) -> list[int]:
    """The released code's rounding of shares that sum to `total`; some results may exceed `most`.

    Shares are rounded down and cut to `most`. The tokens cut off, and then the tokens missing from `total`, are divided
    equally between the layers below `most`; the first of these layers get one more each until the remainder is used.
    """
    rounded = [int(share) for share in exact]
    cut = sum(max(share - most, 0) for share in rounded)
    rounded = [min(share, most) for share in rounded]
    rounded = raised(rounded, cut, most)
    return raised(rounded, total - sum(rounded), most)


def raised(parts: Sequence[int], more: int, most: int) -> list[int]:
    """`parts` with `more` divided between the parts below `most`, which may then exceed it. Without such a part `more`
    is lost."""
    free = [layer for layer, part in enumerate(parts) if part < most]
    result = list(parts)
    for place, layer in enumerate(free):
        result[layer] += more // len(free) + (place < more % len(free))
    return result
