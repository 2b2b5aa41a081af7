"""A score that only distinguishes the context from the tokens around it."""

import torch
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs, Span
from kvbench.utils.checked import NonNegative, checked


@checked
class AroundContext(Scoring):
    """Equal scores for all tokens of the context; the tokens around it always stay, at any budget.

    This is the head of the chat template in front of the context and what follows it, as for `KVzip`. It is for budgets
    of heads that keep all or nothing of the context (`heads=whole`).

    sinks   first tokens that stand in for the head of the template where a prompt has none.
    """

    sinks: NonNegative = 4

    needs = Needs(context=True)
    per_query_head = False
    minimum_budget = 1  # a smaller budget than what always stays is exceeded

    @property
    def always(self) -> int:
        return self.sinks

    def votes(self, layer: LayerState) -> Tensor:
        votes = torch.full((layer.num_key_value_heads, layer.n), float("inf"), device=layer.keys.device)
        votes[:, slice(*self._context(layer))] = 0
        return votes

    def least(self, layer: LayerState) -> int:
        start, end = self._context(layer)
        return layer.n - (end - start)

    def _context(self, layer: LayerState) -> Span:
        start, end = layer.context or (0, layer.n)
        return Span(min(start or self.sinks, end), end)
