"""SimLayerKV (arXiv 2410.13846): lazy layers, which attend to sinks and recent tokens, keep only these tokens."""

from dataclasses import field
from functools import partial
from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.allocation.weighted import refuse_weighted
from kvbench.methods.base.method import Method
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.facts import values
from kvbench.methods.full import FullKV
from kvbench.methods.selection import Selection, sinks_and_recent
from kvbench.methods.simlayerkv.layer_cache import FirstDecodeDecision, FirstDecodeLayer, Store
from kvbench.methods.storage.base import KeptLayer, Storage, refuse_joint, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.ops.attention_mass import attention_mass
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


@checked
class SimLayerKV(Method):
    """Find the lazy layers of each prompt and trim them to sinks and recent tokens (2024, arXiv 2410.13846).

    A layer's score p in [0, 1] is the share of its queries' attention that goes to X = sinks and recent tokens,
    averaged over query heads and computed by log-sum-exp in float32. The layer is lazy if p > delta.

    variant    prefill: equation 1, the last `w_last` prompt queries with X fixed at the prompt's end. (The paper's
               listing for flash attention omits the scale and the causal mask; both are applied here.)
               decode: equation 2, the paper's main tables: the first decoded token's query over the prompt and
               itself. This token attends to the full cache, the next token to the trimmed cache. An answer of one
               token is never affected.
    delta      threshold, published per model; the method then takes no ratio or budget for the lazy layers.
               null: trim the highest-scoring layers (ties: the lower layer first), as few as bring the mean length over
               layers to at most the ratio or budget. If trimming all layers is not enough, r is larger.
    window     recent tokens: 1024 in the paper's text and code. Table 12 counts 1020 in addition to 4 sinks:
               window=1020.
    include_current   decode only. true, as in the code: the window includes the decoded token. false: the window has
               only prompt tokens, and the decoded token is added to it (the code's 4-bit path).
    others     compresses the layers that are not lazy: FullKV, or an `Eviction`, which then takes the ratio or budget
               (with a budget below sinks + window it keeps less than a lazy layer).
    storage    how trimmed layers are held. `others` has a storage, too; the YAML sets it to this one.

    r counts the prompt's tokens, so with include_current a lazy layer holds sinks + window - 1 of them.
    """

    short = values(window=24, delta=0.123)

    variant: Literal["prefill", "decode"] = "prefill"
    delta: Fraction | None = 0.9
    sinks: NonNegative = 4
    window: Positive = 1024
    w_last: Positive = 32
    include_current: bool = True
    others: Method = field(default_factory=FullKV)
    storage: Storage = field(default_factory=Dense)

    divisible = False  # the budget does not change what a lazy layer keeps

    def __post_init__(self) -> None:
        if not isinstance(self.others, FullKV | Eviction):
            raise UserError(f"others={type(self.others).__name__} must be FullKV or an Eviction")
        evicts = isinstance(self.others, Eviction)
        if evicts and self.variant == "decode":
            raise UserError(
                "variant=decode finds lazy layers at the first decoded token, but the eviction in others= selects "
                "at the end of prefill: use variant=prefill"
            )
        if evicts and self.delta is None:
            raise UserError(
                "delta=null uses the ratio to choose lazy layers, but the eviction in others= needs the ratio: "
                "give delta a number"
            )
        if not self.include_current and self.variant == "prefill":
            raise UserError("include_current=false is about the first decoded token: it needs variant=decode")
        refuse_joint(self.storage, "SimLayerKV")
        if isinstance(self.others, Eviction):
            refuse_weighted(self.others.allocation, "SimLayerKV")
            if self.others.heads.pools_layers:
                raise UserError(
                    f"{type(self.others.heads).__name__} divides the budget by the scores of all layers, but SimLayerKV"
                    " compresses each layer by itself: it needs other budgets of heads, for example EqualHeads"
                )
            if self.others.granularity == "kv_head":
                refuse_union(self.storage, "granularity=kv_head")
        else:
            refuse_joint(self.others.storage, "SimLayerKV")
            refuse_union(self.storage, "SimLayerKV over FullKV")
        self.takes_budget = evicts or self.delta is None
        if self.variant == "prefill":
            self.needs = Needs(window=self.w_last) | self.others.needs | self.storage.needs
            self.compress_at, self.ratio_of = self.others.compress_at, self.others.ratio_of
            self.takes_fractions = self.others.takes_fractions
        elif self.storage.needs != Needs():
            raise UserError(
                "variant=decode compresses a layer after the prompt's queries are freed, but "
                f"{type(self.storage).__name__} reads them"
            )
        else:
            self.compress_at, self.full_cache_tokens = "first_decode", 2

    @property
    def minimum_budget(self) -> int:
        return self.others.minimum_budget

    @property
    def never_full(self) -> str:
        return "lazy by threshold" if self.delta is not None else ""

    @property
    def overspends(self) -> str:
        fixed = self.delta is not None and self.takes_budget
        return "lazy layers keep sinks and window whatever the budget" if fixed else ""

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return min(part.least_share(element_bytes, layer) for part in (self.storage, self.others))

    @property
    def unfolds(self) -> bool:
        return self.storage.unfolds and self.others.unfolds

    @property
    def layerwise(self) -> bool:
        return self.delta is not None

    @property
    def batches(self) -> bool:
        return self.variant != "decode" and self.storage.batches and self.others.batches

    def floor(self, n: int, num_layers: int) -> int:
        return self.others.floor(n, num_layers) if self.delta is not None else min(n, self.sinks + self.recent)

    @property
    def recent(self) -> int:
        """Prompt tokens in a lazy layer's window."""
        return self.window - 1 if self.variant == "decode" and self.include_current else self.window

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if self.delta is not None:
            return super().compress(state, budget)
        count = len(state.layers)
        if self.variant == "decode":
            decision = FirstDecodeDecision(
                count, self.decoding_score, lambda scores: self._stores(scores, state.n, budget)
            )
            return [FirstDecodeLayer(layer, decision) for layer in state.layers]
        stores = self._stores([self.score(layer).item() for layer in state.layers], state.n, budget)
        return [store(layer) for store, layer in zip(stores, state.layers, strict=True)]

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.delta is None:
            raise UserError("delta=null compares all layers with each other: one layer alone needs a number")
        if self.variant == "decode":
            return FirstDecodeLayer(layer, FirstDecodeDecision(1, self.decoding_score, self._stores))
        if self.trims([self.score(layer).item()])[0]:
            return self._trim(layer)
        return self.others.compress_layer(layer, index, num_layers, budget)

    def score(self, layer: LayerState) -> Tensor:
        """p of equation 1, a float32 scalar, from the last `w_last` prompt queries."""
        queries = layer.last_queries(self.w_last)
        return self._score(queries, layer.keys, layer.scaling, self.window)

    def decoding_score(self, queries: Tensor, keys: Tensor, scaling: Scaling) -> Tensor:
        """p of equation 2, a float32 scalar.

        queries [num_attention_heads, 1, head_dim] of the first decoded token, keys [num_key_value_heads, n + 1,
        head_dim] of the prompt and this token. The last `window` keys include this token, whether or not the kept
        window includes it (as in SimLayerKV's code, also in its 4-bit path).
        """
        return self._score(queries, keys, scaling, self.window)

    def _score(self, queries: Tensor, keys: Tensor, scaling: Scaling, recent: int) -> Tensor:
        chosen = sinks_and_recent(keys.shape[1], self.sinks, recent, keys.device)[0]
        return attention_mass(queries, keys, scaling, chosen).mean().clamp(0, 1)

    def lazy(self, scores: list[float], n: int = 0, budget: int = 0) -> list[bool]:
        """Which layers are lazy. n and budget are read only if delta is null."""
        if self.delta is not None:
            return [score > self.delta for score in scores]
        count = layers_to_trim(n, self.sinks + self.recent, budget, len(scores))
        laziest = sorted(range(len(scores)), key=lambda layer: (-scores[layer], layer))[:count]
        return [layer in laziest for layer in range(len(scores))]

    def trims(self, scores: list[float], n: int = 0, budget: int = 0) -> list[bool]:
        """Which layers are trimmed: the lazy layers."""
        return self.lazy(scores, n, budget)

    def _stores(self, scores: list[float], n: int = 0, budget: int = 0) -> list[Store]:
        full = partial(self.others.compress_layer, index=0, num_layers=1, budget=0)  # FullKV ignores these
        return [self._trim if trim else full for trim in self.trims(scores, n, budget)]

    def _trim(self, layer: LayerState) -> LayerCache:
        return self.storage.store(layer.stored, trimmed(layer, self.sinks, self.recent))


def trimmed(layer: LayerState, sinks: int, recent: int) -> Selection:
    """The first `sinks` and last `recent` tokens of a layer; every token if the two ranges overlap."""
    if layer.n <= sinks + recent:
        return Selection.everything(layer)
    return Selection(sinks_and_recent(layer.n, sinks, recent, layer.keys.device), sinks + recent)


def layers_to_trim(n: int, short: int, budget: int, num_layers: int) -> int:
    """How many of `num_layers` layers must be trimmed from n to `short` tokens for a mean of at most `budget`.

    All layers if even that exceeds the budget; 0 if trimming frees nothing.
    """
    if short >= n or budget >= n:
        return 0
    return min(num_layers, -(-num_layers * (n - budget) // (n - short)))
