"""Eviction: allocation × scoring × granularity × heads × storage. SnapKV, PyramidKV and AdaKV are choices of these."""

import math
from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.eviction_cuts import Cuts
from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.allocation.weighted import WeightedAllocation
from kvbench.methods.base import Method
from kvbench.methods.cascade import Cascade
from kvbench.methods.decode_compression import DecodeCompression
from kvbench.methods.heads.base import HeadBudgets
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.heads.pooled import GivenHeads, GivenTokens
from kvbench.methods.interval_layer import interval_layer
from kvbench.methods.layer_stream import LayerStream
from kvbench.methods.ragged_selection import RaggedSelection, first_and_window
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.window_attention import WindowAttention
from kvbench.methods.selection import Selection, first, ranking, reduce_group, with_window
from kvbench.methods.storage.base import Storage, alike, refuse_joint, refuse_union, require_ragged
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState, PrefillState
from kvbench.utils.checked import checked


@checked
class Eviction(Method):
    """Keep, per head, the window and the best scored other tokens; drop the rest once, after prefill, or later too.

    granularity   kv_head: one set per KV head, its query heads' scores reduced by `group_reduce`.
                  query_head: each query head selects its own tokens, as SnapKV's and PyramidKV's code and papers do.
                  layer: one set for the layer, the scores of all its heads reduced by `group_reduce` (TOVA).
    heads         how a layer's tokens are shared between the heads that select.
    decode_compression   when and how far the cache is reduced while decoding, by the same scores of the tokens that are
                  left; null: never.
    """

    allocation: Allocation = field(default_factory=Uniform)
    scoring: Scoring = field(default_factory=WindowAttention)
    granularity: Literal["kv_head", "query_head", "layer"] = "kv_head"
    group_reduce: Literal["mean", "max", "sum"] = "mean"
    storage: Storage = field(default_factory=Dense)
    heads: HeadBudgets = field(default_factory=EqualHeads)
    decode_compression: DecodeCompression | None = None

    def __post_init__(self) -> None:
        if self.granularity == "query_head" and self.group_reduce != "mean":
            raise UserError(
                f"group_reduce={self.group_reduce} reduces a group's query heads to one set, but with "
                "granularity=query_head each keeps its own: it must be mean"
            )
        if self.granularity == "query_head" and not self.scoring.per_query_head:
            raise UserError(
                f"{type(self.scoring).__name__} gives all query heads of a KV head the same scores: "
                "it needs granularity=kv_head or layer, not query_head"
            )
        refuse_joint(self.storage, type(self).__name__)
        if self.granularity != "query_head":
            refuse_union(self.storage, f"granularity={self.granularity}")
        if self.heads != EqualHeads():
            name = type(self.heads).__name__
            require_ragged(self.storage, name)
            if self.granularity == "layer":
                raise UserError(f"{name} shares tokens between heads: granularity=layer keeps the same in all of them")
            if self.heads.whole_model and not isinstance(self.allocation, Uniform):
                raise UserError(f"{name} divides the budget between layers, too: it needs allocation Uniform")
            self.takes_fractions = self.heads.takes_fractions
        self.needs = self.scoring.needs | self.storage.needs
        if isinstance(self.allocation, WeightedAllocation):
            self.needs |= self.allocation.needs
            self.allocation.check(self.scoring)
        if self.decode_compression is not None:
            self._check_decoding(self.decode_compression)
            self.takes_fractions, self.ratio_of, self.compress_at = self.decode_compression.protocol
        self._layer_tokens = lru_cache(maxsize=8)(self.layer_tokens)  # every layer reads the same plan

    @property
    def minimum_budget(self) -> int:
        return self.scoring.minimum_budget

    @property
    def layerwise(self) -> bool:
        return not self._joins_layers and not self.storage.joint

    @property
    def streams(self) -> bool:
        if self.layerwise or not isinstance(self.allocation, WeightedAllocation):
            return super().streams
        cut = self.decode_compression is None or self.decode_compression.prompt == "cut"
        return cut and not self.needs.reconstructions

    def layer_stream(self, num_layers: int, budget: int) -> LayerStream:
        if isinstance(self.allocation, WeightedAllocation):
            return Cascade(self, num_layers, budget)
        return super().layer_stream(num_layers, budget)

    @property
    def _joins_layers(self) -> bool:
        """Whether the tokens of a layer depend on the states of all layers."""
        return self.heads.pools_layers or isinstance(self.allocation, WeightedAllocation)

    @property
    def batches(self) -> bool:
        return self.storage.batches and self.decode_compression is None

    @property
    def divisible(self) -> bool:
        return super().divisible and isinstance(self.allocation, Uniform) and not self.heads.whole_model

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if self._joins_layers and budget < state.n:
            return self.given(state, budget).compress(state, budget)
        if self.decode_compression is not None or not self.storage.groups_layers:
            return super().compress(state, budget)
        count = len(state.layers)
        selections = [self.select(layer, index, count, budget) for index, layer in enumerate(state.layers)]
        return self.storage.store_all(state.layers, selections)

    def given(self, state: PrefillState, budget: int) -> "Eviction":
        """This eviction with the budgets of layers or heads that the states of all layers give; one wait."""
        window = self.scoring.protected(budget)
        if isinstance(self.allocation, WeightedAllocation):
            return replace(self, allocation=self.allocation.weighed(state.layers, partial(self.scores, window=window)))
        ranked = [self.scores(layer, window).sort(dim=-1, descending=True).values for layer in state.layers]
        found = self.heads.pooled(ranked, budget, window, state.n)
        tokens = tuple(window + math.ceil(sum(row) / len(row)) for row in found.tolist())
        return replace(self, allocation=GivenTokens(tokens), heads=GivenHeads(found))

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        when = self.decode_compression
        if when is None:
            return self.storage.store(layer, self.select(layer, index, num_layers, budget))

        def select(layer: LayerState, budget: int) -> Selection:
            return alike(self.select(layer, index, num_layers, budget))

        def keep(state: LayerState, target: int, seen: int) -> Tensor | None:
            return self.keep(state, index, num_layers, target, seen)

        return interval_layer(when, layer, budget, select, keep, self.needs)

    def select(self, layer: LayerState, index: int, num_layers: int, budget: int) -> Selection | RaggedSelection:
        """The tokens of one layer to keep, at a mean of `budget` per head over all layers."""
        if budget >= layer.n:
            return Selection.everything(layer)
        window = self.scoring.protected(budget)
        least = self.scoring.least(layer)
        tokens = self.prompt_tokens(layer, index, num_layers, budget)
        scores = self.scores(layer, window)
        order = ranking(scores)
        heads = self.heads.for_prompt(budget, least)
        ranked = scores.gather(1, order)
        counts = heads.counts(ranked, tokens, window, layer)
        cuts = Cuts.of(ranked, counts, layer.keys.dtype, self.scoring.copies) if self.scoring.orders_by_scores else None
        by_scores, order = order, self.scoring.order(order, scores, counts, window, heads.sure(tokens, window), layer)
        if self.scoring.orders_by_scores and order is not by_scores:
            raise UserError(f"{type(self.scoring).__name__} has an order of its own: it needs orders_by_scores = False")
        if isinstance(counts, int):
            return Selection(with_window(first(order, counts), layer.n, window), tokens, cuts)
        place = len(scores), tokens, window, layer
        chosen = first_and_window(order, counts, layer.n)
        return RaggedSelection(chosen, heads.nominal(*place), heads.longest(*place), cuts)

    def prompt_tokens(self, layer: LayerState, index: int, num_layers: int, budget: int) -> int:
        """Tokens of one layer to keep per head, of which there are more than `budget`."""
        least = self.scoring.protected(budget) + self.scoring.least(layer)
        return max(self._layer_tokens(budget, layer.n, num_layers)[index], least)

    def keep(self, state: LayerState, index: int, num_layers: int, target: int, seen: int) -> Tensor | None:
        """The stored tokens to keep while decoding, [heads, k], at a mean of `target` per head; None: all of them.

        `state` has the tokens that are left of a text of `seen` tokens.
        """
        target = max(target, self.minimum_budget)
        if target >= seen or (tokens := self._layer_tokens(target, seen, num_layers)[index]) >= state.n:
            return None
        window = self.scoring.protected(target)
        chosen = ranking(self.scores(state, window))[:, : tokens - window]
        assert self.decode_compression is not None, "tokens are dropped while decoding"
        if self.decode_compression.slots == "position":
            chosen = chosen.sort(dim=-1).values
        return with_window(chosen, state.n, window)

    def _check_decoding(self, when: DecodeCompression) -> None:
        """Refuse what cannot drop tokens while decoding."""
        if self.storage != Dense():
            raise UserError(
                "decode_compression drops single tokens from its own store: it needs dense, unfolded storage, not "
                f"{type(self.storage).__name__}"
            )
        if self.heads != EqualHeads():
            raise UserError(
                f"{type(self.heads).__name__} gives heads different numbers of tokens, but decode_compression leaves "
                "equally many in each: it needs equal heads"
            )
        if not self.scoring.while_decoding:
            raise UserError(
                f"{type(self.scoring).__name__} reads what only the prefill of a prompt observes: it cannot score for "
                "decode_compression"
            )
        if when.budget is not None and when.budget < self.minimum_budget:
            raise UserError(
                f"decode_compression.budget={when.budget} is too small for {type(self.scoring).__name__}: at least "
                f"{self.minimum_budget} are needed"
            )

    def layer_tokens(self, budget: int, n: int, num_layers: int) -> Sequence[int]:
        """Tokens per head in each layer for a prompt of n > budget tokens.

        Raises UserError where a layer gets fewer than the scoring always keeps.
        """
        window = self.scoring.protected(budget)
        tokens = self.allocation.tokens(budget, n, window, num_layers) if budget >= window else [budget]
        if min(tokens) < window:
            raise UserError(
                f"a budget of {budget} leaves {min(tokens)} tokens to a layer, but {type(self.scoring).__name__} "
                f"always keeps the last {window}: the smallest budget is {self.minimum_budget}"
            )
        return tokens

    def scores(self, layer: LayerState, window: int) -> Tensor:
        """Scores of the tokens before the window, float32 [heads, n - window], heads as `granularity` says."""
        if layer.scores is not None:
            return layer.scores
        votes = self.scoring.votes(layer)[:, : layer.n - window]
        return self.scoring.smooth(self.per_head(votes, layer))

    def per_head(self, votes: Tensor, layer: LayerState) -> Tensor:
        """Votes of query heads [num_attention_heads, len], or of KV heads, as votes of the heads that select."""
        if self.granularity == "query_head":
            return votes
        heads = 1 if self.granularity == "layer" else layer.num_key_value_heads
        return votes if len(votes) == heads else reduce_group(votes, heads, self.group_reduce)
