"""A score that only distinguishes the context from the tokens around it."""

import torch
from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs, Span
from kvbench.utils.checked import NonNegative, checked


@checked
class AroundContext(Scoring):
    """Equal scores for all tokens of the context; the tokens around it always stay, at any budget.

    Tokens around the context are the head of the chat template before it and all tokens after it, as for `KVzip`. The
    score is for budgets of heads that keep all or nothing of the context (`heads=whole`).

    sinks   first tokens that take the place of the template's head in a prompt without one.
    """

    sinks: NonNegative = 4

    needs = Needs(context=True)
    per_query_head = False
    minimum_budget = 1  # tokens that always stay may exceed the budget

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
