"""Scoring: how much each prompt token matters."""

from abc import ABC, abstractmethod
from functools import cached_property
from numbers import Integral

from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.facts import Stated
from kvbench.prefill import LayerState, Needs

MOST_PROTECTED = 2**20  # tokens; a scoring that protects more is assumed to protect every token of any budget


class Scoring(Stated, ABC):
    """Importance of prompt tokens, from prefill observations. A new scoring is one class with `votes`.

    orders_by_scores   False for a scoring that overrides `order`.
    reads_dropped      whether `order` reads keys or values of the layer, some of which a cascade has dropped by then.
    per_query_head     False for a scoring that reads only keys and values, which all query heads of a group share.
    signed             whether votes may be negative.
    sinks, window      the first `sinks` and the last `window` tokens are always kept; they may be fields.
    needs              the observations that `votes` reads beside keys and values.
    """

    orders_by_scores: bool = True
    reads_dropped: bool = False
    per_query_head: bool = True
    signed: bool = False
    sinks: int = 0
    window: int = 0

    @cached_property
    def needs(self) -> Needs:
        return Needs()

    @property
    def while_decoding(self) -> bool:
        """Whether it can score stored tokens while decoding, when the only observations are the last queries and the
        attention of all queries so far."""
        return self.needs == Needs(window=self.needs.window, column_sums=self.needs.column_sums)

    def protected(self, budget: int) -> int:
        """How many of the `budget` tokens per head are always the last tokens of the prompt."""
        return self.window

    def window_of(self, budget: int) -> int:
        """`protected`, of whole tokens: heads may take a fraction. Raises UserError unless it is a number of tokens."""
        window: object = self.protected(int(budget + 1e-9))  # 1e-9: float noise
        if isinstance(window, Integral) and int(window) >= 0:
            return int(window)
        raise UserError(
            f"{type(self).__name__}.protected returned {window!r} for a budget of {budget}: it must be an integer of "
            "at least 0, the number of tokens that always stay"
        )

    @abstractmethod
    def votes(self, layer: LayerState) -> Tensor:
        """Importance of each token for each query head, float32 [num_attention_heads, n]; the highest are kept.

        [num_key_value_heads, n] if `per_query_head` is False. `layer` is shared by all settings of a sample: do not
        write it.
        """

    def votes_of(self, layer: LayerState) -> Tensor:
        """`votes`. Raises UserError unless they are numbers of its shape on the keys' device, without a wait for it."""
        votes: object = self.votes(layer)
        heads, number = (
            ("num_attention_heads", layer.num_attention_heads)
            if self.per_query_head
            else ("num_key_value_heads", layer.num_key_value_heads)
        )
        if isinstance(votes, Tensor) and votes.is_floating_point() and votes.shape == (number, layer.n):
            if votes.device != layer.keys.device:
                raise UserError(
                    f"{type(self).__name__}.votes returned a tensor on {votes.device}: it must be on the device of the "
                    f"keys, here {layer.keys.device}"
                )
            return votes
        hint = "; an observation that `needs` does not list is None" if votes is None else ""
        raise UserError(
            f"{type(self).__name__}.votes returned {_described(votes)}: with per_query_head = {self.per_query_head} it "
            f"must be a floating-point tensor [{heads}, n], here {[number, layer.n]}{hint}"
        )

    def least(self, layer: LayerState) -> int:
        """How many tokens before the window have infinite votes in every head: they are kept whatever the budget."""
        return min(self.sinks, layer.n)

    def queries(self, layer: LayerState) -> int:
        """The number of queries over which `votes` sums attention."""
        return 1

    def smooth(self, votes: Tensor) -> Tensor:
        """Smooth votes [heads, n - protected], for example by pooling, after each group was reduced to one head."""
        return votes

    def smoothed(self, votes: Tensor) -> Tensor:
        """`smooth`. Raises UserError for anything but a score of each token, without a wait for the device: scores of
        fewer or more tokens, as pooling without padding gives, would be those of other tokens."""
        scores: object = self.smooth(votes)
        if isinstance(scores, Tensor) and scores.is_floating_point() and scores.shape == votes.shape:
            return scores
        raise UserError(
            f"{type(self).__name__}.smooth returned {_described(scores)} for votes {[*votes.shape]}: it must be a "
            "floating-point tensor of the same shape"
        )

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        """Indices [heads, len] of the tokens before the window, in the order in which they are kept.

        Override it, with `orders_by_scores = False`, if the choice depends on how many tokens a head keeps.

        order    the order of `scores` [heads, len], the largest first.
        counts   tokens that each head keeps in addition to its window: int64 [heads], or one number for all heads.
        sure     the first `sure` indices of `order` must stay first.
        """
        return order

    @property
    def copies(self) -> bool:
        """Whether equal scores are mostly copies of one score, as after max pooling: equal after any rounding."""
        return False

    def keep_sinks(self, votes: Tensor) -> Tensor:
        """A copy of votes [heads, n] that ranks the first `sinks` tokens before all others.

        A copy, because votes may be an observation that all settings read.
        """
        votes = votes.clone()
        votes[:, : self.sinks] = float("inf")
        return votes

    @property
    def minimum_budget(self) -> int:
        """The smallest budget that leaves a token to choose: the least b > sinks with protected(b) + sinks < b."""
        budget = 1 + self.sinks
        while (protected := self.window_of(budget) + self.sinks) >= budget:
            if protected > MOST_PROTECTED:
                raise UserError(f"{type(self).__name__} protects every token of any budget, so none is left to choose")
            budget = protected + 1
        return budget


def _described(value: object) -> str:
    """What a scoring returned, for an error: of a tensor dtype and shape."""
    return f"{value.dtype} {[*value.shape]}" if isinstance(value, Tensor) else repr(value)
