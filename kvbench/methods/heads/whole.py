"""Whole heads: some heads keep every token, the others only what always stays; KVzip's head-level variant."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.head_scores import HeadScores, read_head_scores
from kvbench.methods.heads.base import HeadBudgets
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class WholeHeads(HeadBudgets):
    """The heads with the best scores of a file keep everything: KVzip's level `head` (Kim et al. 2025, arXiv
    2505.23416).

    The others keep what the scoring protects, and the tokens that stay whatever their score. The heads are the same for
    every prompt.

    scores_file   a file of `kvbench calibrate FILE scores=kvzip`, or a released one (.pt); its hash is in the record's
                  key. Scores of query heads are averaged.
    threshold     exact: as many heads as the budget holds. Ties: the lower layer, then the lower head stays.
                  official: the released code. A ratio ρ is of the context alone, all of whose N tokens in all heads of
                  all layers have their head's score; heads above the int(Nρ)-th largest stay, and none of several equal
                  ones at the cut, so that small ratios may keep no head.
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

    def for_prompt(self, budget: float, least: int) -> "WholeHeadsOf":
        if self._scores is None:
            raise UserError(
                "WholeHeads needs scores_file=FILE, which `kvbench calibrate FILE scores=kvzip model=…` makes for any "
                "model"
            )
        return WholeHeadsOf(self._scores, self.threshold, budget, least)

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        raise TypeError("WholeHeads has no counts without the budget of all layers: see for_prompt()")


@dataclass(frozen=True)
class WholeHeadsOf(HeadBudgets):
    """The whole heads of prompts of which a head keeps `least` tokens before the window, at a mean of `budget`."""

    scores: HeadScores
    threshold: str
    budget: float
    least: int

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        return torch.tensor(self._row(len(ranked), window, layer), device=ranked.device)

    def nominal(self, heads: int, tokens: int, window: int, layer: LayerState) -> int:
        return window + math.ceil(sum(self._row(heads, window, layer)) / heads)

    def longest(self, heads: int, tokens: int, window: int, layer: LayerState) -> int:
        return window + max(self._row(heads, window, layer))

    def _row(self, heads: int, window: int, layer: LayerState) -> list[int]:
        """The tokens before the window that each head of the layer keeps."""
        scores = self.scores.of_heads(heads, layer)
        context = layer.n - window - self.least
        order = sorted(
            ((score, at, head) for at, row in enumerate(scores) for head, score in enumerate(row)),
            key=lambda one: (-one[0], one[1:]),
        )
        whole = {(at, head) for _, at, head in order[: self._whole([score for score, *_ in order], context, layer.n)]}
        return [self.least + context * ((layer.index, head) in whole) for head in range(heads)]

    def _whole(self, ranked: list[float], context: int, n: int) -> int:
        """How many heads, of which `ranked` has the scores, the largest first, keep all tokens of the context."""
        heads = len(ranked)
        if self.threshold == "official":
            place = max(int(heads * context * self.budget / n + 1e-9) - 1, 0)  # 1e-9: float noise
            return sum(score > ranked[place // context] for score in ranked) if context else 0
        free = self.budget - (n - context)
        return max(int(heads * free / context + 1e-9), 0) if context else 0
