"""The base of scorings that change the scores of another scoring."""

from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState


class OverScoring(Scoring):
    """Forwards to `base`, another scoring. A subclass has the field `base` and overrides some methods."""

    base: Scoring

    def __post_init__(self) -> None:
        self.needs, self.sinks = self.base.needs, self.base.sinks
        self.per_query_head, self.signed = self.base.per_query_head, self.base.signed

    @property
    def while_decoding(self) -> bool:
        return self.base.while_decoding

    @property
    def minimum_budget(self) -> int:
        return self.base.minimum_budget

    @property
    def copies(self) -> bool:
        return self.base.copies

    def protected(self, budget: int) -> int:
        return self.base.window_of(budget)

    def votes(self, layer: LayerState) -> Tensor:
        return self.base.votes_of(layer)

    def least(self, layer: LayerState) -> int:
        return self.base.least(layer)

    def queries(self, layer: LayerState) -> int:
        return self.base.queries(layer)

    def smooth(self, votes: Tensor) -> Tensor:
        return self.base.smoothed(votes)
