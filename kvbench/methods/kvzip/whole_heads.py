"""Whole heads, KVzip's head-level variant: some heads keep every token, the others only tokens that always stay."""

from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.heads.base import HeadBudgets, HeadCounts, LayerBudget
from kvbench.methods.heads.head_scores import read_head_scores
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class WholeHeads(HeadBudgets):
    """The heads with the best scores of a file keep everything: KVzip's level `head` (Kim et al. 2025, arXiv
    2505.23416).

    The others keep only the tokens that the scoring always keeps. The heads are the same for every prompt.

    scores_file   a file of `kvbench calibrate FILE scores=kvzip`, or a released file (.pt); its hash is in the record's
                  key. Scores of query heads are averaged.
    threshold     exact: as many heads as the budget holds. Ties: the lower layer, then the lower head stays.
                  official: the released code. A ratio ρ counts only the context. Each of the N context tokens of all
                  heads and layers has the score of its head. Heads above the int(Nρ)-th largest score stay; heads with
                  an equal score do not, so that small ratios may keep no head.
    """

    scores_file: str | None = None
    threshold: Literal["exact", "official"] = "exact"

    whole_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._scores = None if self.scores_file is None else read_head_scores(self.scores_file)

    @property
    def overspends(self) -> str:
        return "the ratio is of the context" if self.threshold == "official" else ""

    @cached_property
    def takes_fractions(self) -> bool:
        return self.threshold == "official"

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        row = self._row(len(ranked), LayerBudget(tokens, window, 0, tokens), layer)
        return torch.tensor(row, device=ranked.device)

    def share(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        return HeadCounts.known(self._row(len(ranked), budget, layer), budget.window, ranked.device)

    def _row(self, heads: int, budget: LayerBudget, layer: LayerState) -> list[int]:
        """How many tokens before the window each head of the layer keeps."""
        if self._scores is None:
            raise UserError(
                "WholeHeads needs scores_file=FILE, which `kvbench calibrate FILE scores=kvzip model=…` makes for any "
                "model"
            )
        scores = self._scores.of_heads(heads, layer)
        context = layer.n - budget.window - budget.least
        order = sorted(
            ((score, at, head) for at, row in enumerate(scores) for head, score in enumerate(row)),
            key=lambda entry: (-entry[0], entry[1:]),
        )
        count = self._whole([score for score, *_ in order], context, budget.model, layer.n)
        kept_whole = {(at, head) for _, at, head in order[:count]}
        return [budget.least + context * ((layer.index, head) in kept_whole) for head in range(heads)]

    def _whole(self, ranked: list[float], context: int, budget: float, n: int) -> int:
        """How many heads keep all tokens of the context. ranked: the scores of all heads, the largest first."""
        heads = len(ranked)
        if self.threshold == "official":
            place = max(int(heads * context * budget / n + 1e-9) - 1, 0)  # 1e-9: float noise
            return sum(score > ranked[place // context] for score in ranked) if context else 0
        free = budget - (n - context)
        return max(int(heads * free / context + 1e-9), 0) if context else 0
