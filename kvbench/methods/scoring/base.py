"""Scoring: how much each prompt token matters."""

from abc import ABC, abstractmethod
from functools import cached_property

from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.facts import Stated
from kvbench.prefill import LayerState, Needs

MOST_PROTECTED = 2**20  # tokens; a scoring that protects more of every budget never lets one be chosen


class Scoring(Stated, ABC):
    """Importance of prompt tokens, from prefill observations. A new scoring is one class with `votes`.

    The first `sinks` and the last `window` tokens always stay: a scoring may have fields of these names. `needs` names
    the observations that `votes` reads; without any, keys and values are there. A scoring that reads these alone has no
    scores for single query heads: `per_query_head` is False. `signed` scorings have negative votes. `orders_by_scores`
    is False for those with an `order` of their own.
    """

    orders_by_scores: bool = True
    per_query_head: bool = True
    signed: bool = False
    sinks: int = 0
    window: int = 0

    @cached_property
    def needs(self) -> Needs:
        return Needs()

    @property
    def while_decoding(self) -> bool:
        """Whether it can score the tokens that are left while decoding, when there are the last queries, and the
        attention of all queries so far, but no other observation."""
        return self.needs == Needs(window=self.needs.window, column_sums=self.needs.column_sums)

    def protected(self, budget: int) -> int:
        """How many trailing tokens of the prompt are always kept, out of `budget` per head."""
        return self.window

    @abstractmethod
    def votes(self, layer: LayerState) -> Tensor:
        """Importance of each token for each query head, float32 [num_attention_heads, n]; higher is kept.

        [num_key_value_heads, n] where `per_query_head` is False. `layer` is shared by all settings of a sample: read
        it, never write it.
        """

    def least(self, layer: LayerState) -> int:
        """How many tokens before the window have infinite votes in every head and stay, whatever the budget."""
        return 0

    def queries(self, layer: LayerState) -> int:
        """Over how many queries the attention in `votes` is summed."""
        return 1

    def smooth(self, votes: Tensor) -> Tensor:
        """Votes [heads, n - protected] after the heads of a group were reduced to one, for example pooled."""
        return votes

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        """Indices [heads, len] of what each head keeps first to what it keeps last, of the tokens before the window.

        `order` is that of `scores` [heads, len], the largest first: the result for all scorings but those whose choice
        depends on how many tokens a head keeps. These are `counts`, int64 [heads] or one number for all, beside
        `window` tokens; the first `sure` of `order` must stay first. One that returns another tensor than `order` says
        so by `orders_by_scores = False`.
        """
        return order

    @property
    def copies(self) -> bool:
        """Whether equal scores are mostly copies of one, as max pooling makes them, which no rounding tells apart."""
        return False

    def keep_sinks(self, votes: Tensor) -> Tensor:
        """`votes` [heads, n], written in place, with the first `sinks` tokens before all others."""
        votes[:, : self.sinks] = float("inf")
        return votes

    @property
    def minimum_budget(self) -> int:
        """The smallest budget that leaves a token to choose: the least b > sinks with protected(b) + sinks < b."""
        budget = 1 + self.sinks
        while (protected := self.protected(budget) + self.sinks) >= budget:
            if protected > MOST_PROTECTED:
                raise UserError(f"{type(self).__name__} protects every token of any budget, so none is left to choose")
            budget = protected + 1
        return budget
