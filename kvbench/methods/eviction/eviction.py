"""Eviction: allocation × scoring × granularity × heads × storage. SnapKV, PyramidKV and AdaKV are choices of these."""

from copy import copy
from dataclasses import field
from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.eviction_cuts import Cuts
from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.base.layer_stream import LayerStream
from kvbench.methods.base.method import Method
from kvbench.methods.budgets import Budgets
from kvbench.methods.eviction.cascade import Cascade
from kvbench.methods.eviction.decode_compression import DecodeCompression, Slots
from kvbench.methods.eviction.interval_layer import interval_layer
from kvbench.methods.heads.base import HeadBudgets
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import Selection, first, first_and_window, ranking, reduce_group, with_window
from kvbench.methods.snapkv import WindowAttention
from kvbench.methods.storage.base import Storage, refuse_joint, refuse_union, require_ragged
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState, PrefillState
from kvbench.utils.checked import checked


@checked
class Eviction(Method):
    """Keep, per head, the window and the other tokens with the best scores; drop the rest after prefill, or later too.

    granularity   kv_head: one set per KV head, its query heads' scores reduced by `group_reduce`.
                  query_head: each query head selects its own tokens, as SnapKV's and PyramidKV's code and papers do.
                  layer: one set for the layer, the scores of all its heads reduced by `group_reduce` (TOVA).
    heads         how a layer's tokens are shared between the heads that select.
    decode_compression   when and how far the cache is reduced while decoding, by the same scoring of the stored tokens;
                  null: never.

    A subclass whose cache can drop a token at every step has a field `decode`; any value except "grow" turns this on.
    """

    allocation: Allocation = field(default_factory=Uniform)
    scoring: Scoring = field(default_factory=WindowAttention)
    granularity: Literal["kv_head", "query_head", "layer"] = "kv_head"
    group_reduce: Literal["mean", "max", "sum"] = "mean"
    storage: Storage = field(default_factory=Dense)
    heads: HeadBudgets = field(default_factory=EqualHeads)
    decode_compression: DecodeCompression | None = None

    decode = "grow"

    def __post_init__(self) -> None:
        if self.granularity == "query_head" and self.group_reduce != "mean":
            raise UserError(
                f"group_reduce={self.group_reduce} reduces a group's query heads to one set, but with "
                "granularity=query_head each query head keeps its own set: group_reduce must be mean"
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
                raise UserError(f"{name} shares tokens between heads: granularity=layer keeps the same tokens in all")
            self.takes_fractions = self.heads.takes_fractions
        self.budgets = Budgets(self.allocation, self.heads, self.scoring)
        self.budgets.check()
        self.needs = self.scoring.needs | self.storage.needs | self.budgets.needs
        if self.decode_compression is not None:
            self._check_decoding(self.decode_compression)
            self.takes_fractions, self.ratio_of, self.compress_at = self.decode_compression.protocol

    @property
    def minimum_budget(self) -> int:
        return self.scoring.minimum_budget

    @property
    def counts_groups(self) -> bool:
        return self.granularity == "query_head" and self.storage.counts_groups

    def least(self, layer: LayerState, num_layers: int) -> int:
        window = self.scoring.window_of(self.minimum_budget)
        return max(super().least(layer, num_layers), window + self.scoring.least(layer))

    @property
    def layerwise(self) -> bool:
        return self.budgets.layerwise

    @property
    def streams(self) -> bool:
        if self.budgets.weighted is None:
            return super().streams
        cut = self.decode_compression is None or self.decode_compression.prompt == "cut"
        whole = self.scoring.reads_dropped or self.storage.reads_dropped
        return cut and not whole and not self.needs.reconstructions

    def layer_stream(self, num_layers: int, budget: int) -> LayerStream:
        weighted = self.budgets.weighted
        if weighted is None:
            return super().layer_stream(num_layers, budget)
        return Cascade(self, weighted, num_layers, budget)

    @property
    def batches(self) -> bool:
        return self.storage.batches and self.decode_compression is None and self.decode == "grow"

    @property
    def divisible(self) -> bool:
        return super().divisible and self.budgets.uniform and not self.heads.whole_model

    @property
    def fills_budget(self) -> bool:
        return self.budgets.uniform and self.heads.fills_budget and self.decode_compression is None

    def forget(self) -> None:
        self.budgets.forget()

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if not self.budgets.layerwise and (budget < state.n or self.decode_compression is not None):
            return self.for_prompt(state, budget).compress(state, budget)
        if self.decode_compression is not None or not self.storage.groups_layers:
            return super().compress(state, budget)
        count = len(state.layers)
        selections = [self.select(layer, index, count, budget) for index, layer in enumerate(state.layers)]
        return self.storage.store_all([layer.stored for layer in state.layers], selections)

    def for_prompt(self, state: PrefillState, budget: int) -> "Eviction":
        """This eviction with the budgets that follow from the states of all layers. One wait for the device."""
        return self.with_budgets(self.budgets.of_prompt(state.layers, budget, self.scores))

    def with_budgets(self, budgets: Budgets) -> "Eviction":
        """This eviction with the budgets of one prompt. Its parts have been checked already."""
        eviction = copy(self)
        eviction.budgets = budgets
        return eviction

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        when = self.decode_compression
        if when is None:
            return self.storage.store(layer.stored, self.select(layer, index, num_layers, budget))

        def select(layer: LayerState, budget: int) -> Selection:
            return self.select(layer, index, num_layers, budget)

        def keep(state: LayerState, target: int, seen: int) -> Tensor | None:
            return self.keep(state, index, num_layers, target, seen, when.slots)

        return interval_layer(when, layer, budget, select, keep, self.needs)

    def select(self, layer: LayerState, index: int, num_layers: int, budget: int) -> Selection:
        """The tokens to keep in one layer, where all layers keep a mean of `budget` per head."""
        if budget >= layer.n:
            return Selection.everything(layer)
        if (layer.latents is not None or layer.headless) and self.heads != EqualHeads():
            raise UserError(
                f"{type(self.heads).__name__} makes budgets of heads, and this model stores latents, which all heads "
                "read: use a method with heads EqualHeads"
            )
        window = self.scoring.window_of(budget)
        tokens = self.budgets.of_layer(layer, index, num_layers, budget)
        scores = self.scores(layer, window)
        by_scores = ranking(scores)
        ranked = scores.gather(1, by_scores)
        counts, nominal, longest, sure = self.budgets.of_heads(ranked, tokens, layer, index, budget)
        order = self.scoring.order(by_scores, scores, counts, window, sure, layer)
        cuts = None
        if self.scoring.orders_by_scores:
            if order is not by_scores:
                name = type(self.scoring).__name__
                raise UserError(f"{name} has an order of its own: it needs orders_by_scores = False")
            cuts = Cuts.from_ranked(ranked, counts, layer.keys.dtype, self.scoring.copies)
        if isinstance(counts, int):
            return Selection(with_window(first(order, counts), layer.n, window), nominal, cuts)
        return Selection(None, nominal, cuts, first_and_window(order, counts, layer.n), longest)

    def keep(
        self, state: LayerState, index: int, num_layers: int, target: int, seen: int, slots: Slots
    ) -> Tensor | None:
        """Indices of the stored tokens to keep while decoding, [heads, k], a mean of `target` per head; None: all.

        `state` has the stored tokens of a text of `seen` tokens. `slots`: see `DecodeCompression`.
        """
        target = max(target, self.minimum_budget)
        window = self.scoring.window_of(target)
        least = max(window + self.scoring.least(state), 1)
        if target >= seen or (tokens := self.budgets.of_layers(target, seen, num_layers, least)[index]) >= state.n:
            return None
        chosen = ranking(self.scores(state, window))[:, : tokens - window]
        if slots == "position":
            chosen = chosen.sort(dim=-1).values
        return with_window(chosen, state.n, window)

    def _check_decoding(self, when: DecodeCompression) -> None:
        """Refuse parts that cannot drop tokens while decoding."""
        if self.storage != Dense():
            raise UserError(
                "decode_compression drops single tokens from a layer's store: it needs dense, unfolded storage, not "
                f"{type(self.storage).__name__}"
            )
        if self.heads != EqualHeads():
            raise UserError(
                f"{type(self.heads).__name__} makes budgets of heads from a whole prompt, which decode_compression "
                "does not divide anew: it needs heads EqualHeads"
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

    def scores(self, layer: LayerState, window: int) -> Tensor:
        """Scores of the tokens before the window, float32 [heads, n - window]; `granularity` decides the heads."""
        if layer.scores is not None:
            return layer.scores
        votes = self.scoring.votes_of(layer)[:, : layer.n - window]
        return self.scoring.smoothed(self.per_head(votes, layer))

    def per_head(self, votes: Tensor, layer: LayerState) -> Tensor:
        """Votes of the heads that select, from votes of query heads [num_attention_heads, len] or of KV heads."""
        one_set = self.granularity == "layer" or layer.latents is not None
        if self.granularity == "query_head" and not one_set:
            return votes
        heads = 1 if one_set else layer.num_key_value_heads
        return votes if len(votes) == heads else reduce_group(votes, heads, self.group_reduce)
