"""HeadKV: budgets of heads from a calibration file, the same for every prompt."""

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.allocation.base import largest_remainder, water_filled, with_at_least
from kvbench.methods.heads.base import HeadBudgets, HeadCounts, LayerBudget
from kvbench.methods.heads.head_scores import read_head_scores
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class HeadKV(HeadBudgets):
    """HeadKV (Fu et al. 2024, arXiv 2410.19258): the model's budget goes to the heads that matter for retrieval.

    A head with share p of the scores of all heads selects p·q·m·H + (c - q) tokens, where c = budget - window,
    q = c // beta, m is the number of layers and H the number of heads that select in each layer.

    scores_file   a file of `kvbench calibrate`, or a released file; its hash is in the record's key. Scores of query
                  heads are averaged where granularity=kv_head.
    beta          a larger beta divides a smaller part of the budget by scores. The paper tries eight values, from 1.005
                  to 10, for each setting and does not say which value its tables used.
    surplus       what happens to the excess of shares that are larger than the prompt. return: the other heads share it
                  equally, in whole tokens by largest remainders. waste: it is lost, and each share is rounded, as in
                  the released code.
    """

    scores_file: str | None = None
    beta: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.2
    surplus: Literal["return", "waste"] = "return"

    whole_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._scores = None if self.scores_file is None else read_head_scores(self.scores_file)
        if self._scores and (min(map(min, self._scores.scores)) < 0 or not any(map(any, self._scores.scores))):
            raise UserError(f"scores_file={self.scores_file}: HeadKV needs scores that are not negative, and not all 0")
        self._table = lru_cache(maxsize=8)(self._tokens)  # every layer reads the same

    @property
    def overspends(self) -> str:
        return "the released code rounds the budget of each head" if self.surplus == "waste" else ""

    def forget(self) -> None:
        self._table.cache_clear()

    def counts(self, ranked: Tensor, tokens: int, window: int, layer: LayerState) -> Tensor:
        return torch.tensor(self._row(len(ranked), tokens, window, layer), device=ranked.device)

    def share(self, ranked: Tensor, budget: LayerBudget, layer: LayerState) -> HeadCounts:
        row = self._row(len(ranked), budget.tokens, budget.window, layer, budget.least)
        return HeadCounts.known(row, budget.window, ranked.device)

    def _row(self, heads: int, tokens: int, window: int, layer: LayerState, least: int = 0) -> tuple[int, ...]:
        """How many tokens before the window each head of the layer selects, `least` of them whatever its score."""
        if self._scores is None:
            raise UserError(
                "HeadKV needs scores_file=FILE, which `kvbench calibrate FILE model=…` writes for any model"
            )
        scores = self._scores.of_heads(heads, layer)
        return self._table(tokens - window, layer.n - window, tuple(map(tuple, scores)), least)[layer.index]

    def _tokens(
        self, c: int, most: int, scores: tuple[tuple[float, ...], ...], least: int = 0
    ) -> list[tuple[int, ...]]:
        """How many of `most` tokens each head of each layer selects: at least `least`, which the largest give."""
        all_scores = [score for row in scores for score in row]
        q = c // self.beta
        shares = [score / sum(all_scores) * q * len(all_scores) + (c - q) for score in all_scores]
        if self.surplus == "waste":
            counts = [min(round(share), most) for share in shares]
        else:
            counts = largest_remainder(water_filled(shares, most), c * len(all_scores))
        counts, heads = with_at_least(least, counts), len(scores[0])
        return [tuple(counts[start : start + heads]) for start in range(0, len(counts), heads)]
