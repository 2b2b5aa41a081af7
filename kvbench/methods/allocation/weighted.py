"""Allocation by weights that the states of the layers give."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs


class WeightedAllocation(Allocation):
    """Divides the budget by a weight of each layer. A new weighted allocation is one class with `weight` and `divide`.

    `needs` names the observations that `weight` reads. Compression starts when the prefill has read all layers.
    """

    @cached_property
    def needs(self) -> Needs:
        return Needs()

    def check(self, scoring: Scoring) -> None:
        """Raise UserError for a scoring whose scores `weight` cannot read."""

    @abstractmethod
    def weight(self, layer: LayerState, scores: Callable[[], Tensor]) -> Tensor:
        """The weight of a layer relative to the others: a non-negative float64 scalar. It must not wait for the device.

        `scores()` returns the scores of the tokens before the window, [heads that select, n - window].
        """

    @abstractmethod
    def divide(self, weights: Sequence[float], budget: int, n: int, window: int) -> Sequence[int]:
        """As `tokens`, for layers with these weights."""

    def bounds(self, weights: Sequence[float], budget: int, n: int, window: int, num_layers: int) -> Sequence[int]:
        """Upper bounds of the tokens of the layers read so far, for any weights of the others; as `tokens` counts them.

        `weights` has the weights of the lowest layers of `num_layers`.
        """
        return [n] * len(weights)

    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> Sequence[int]:
        raise TypeError(f"{type(self).__name__} has no tokens without weights of the layers: see divide()")


def refuse_weighted(allocation: Allocation | None, method: str) -> None:
    """Raise UserError for an allocation that `method`, which compresses a layer by itself, cannot follow."""
    if isinstance(allocation, WeightedAllocation):
        raise UserError(
            f"{type(allocation).__name__} divides the budget by the states of all layers, but {method} compresses each "
            "layer by itself: it needs another allocation, for example Uniform"
        )


def shares(weights: Sequence[float], total: int) -> list[float]:
    """`total` divided in proportion to the weights; equally where all are 0."""
    total_weight = sum(weights)
    return [total * weight / total_weight if total_weight else total / len(weights) for weight in weights]
