"""SimLayerKV: layers that look only at sinks and recent tokens need nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.methods.base import Method
from kvbench.methods.eviction import Eviction
from kvbench.methods.full import FullKV
from kvbench.methods.selection import Selection, sinks_and_recent
from kvbench.methods.storage.base import Storage, refuse_joint, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.ops.attention import attention_mass
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.validation import at_least, choice, is_number

Store = Callable[[LayerState], LayerCache]


class Verdict:
    """Hears one score from each of `count` layers, then has every one of them stored as it deserves.

    measure(queries [num_attention_heads, 1, head_dim], keys [num_key_value_heads, n + 1, head_dim], scaling)
    scores a layer on the first decoded token; decide(scores) says how each layer's prompt is to be stored.
    """

    def __init__(
        self,
        count: int,
        measure: Callable[[Tensor, Tensor, float], Tensor],
        decide: Callable[[list[float]], Sequence[Store]],
    ):
        self.count, self.measure, self.decide = count, measure, decide
        self.heard: list[tuple[FirstDecodeLayer, Tensor]] = []

    def hear(self, layer: "FirstDecodeLayer", score: Tensor) -> None:
        self.heard.append((layer, score))
        if len(self.heard) < self.count:
            return
        # one look at the device for all layers; on several devices the scores are brought together first
        scores = torch.stack([score.cpu() for _, score in self.heard]).tolist()
        for (heard, _), store in zip(self.heard, self.decide(scores), strict=True):
            heard.settle(store)


class FirstDecodeLayer(LayerCache):
    """Full keys and values until the verdict; afterwards the cache that the verdict's store makes of the prompt.

    The first decoded token sees everything, and so does its own layer's output: what is stored changes for
    the second. The prompt alone is handed to the store, the token follows as any later one does.
    """

    def __init__(self, layer: LayerState, verdict: Verdict):
        super().__init__(layer.n, Selection.everything(layer).kept(layer))
        self.inner: LayerCache = DenseLayer(layer.keys, layer.values, layer.n, self.kept)
        self.prompt = layer.n
        self.form = (layer.scaling, layer.num_attention_heads, layer.rope)
        self.verdict: Verdict | None = verdict

    def tensors(self) -> list[Tensor]:
        return self.inner.tensors()

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.inner.update(keys, values)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        out = self.inner.attend(query, scaling)
        if self.verdict is not None:
            verdict, self.verdict = self.verdict, None
            verdict.hear(self, verdict.measure(query[0], self.inner.k.view[0], scaling))
        return out

    def settle(self, store: Store) -> None:
        """Let `store` hold the prompt, and go on with what it made."""
        keys, values = self.inner.k.view, self.inner.v.view  # [1, num_key_value_heads, n + 1, head_dim]
        # copies: the store may keep what it is given, and the buffer behind the view has slack
        prompt = [x[0, :, : self.prompt].clone() for x in (keys, values)]
        self.inner = store(LayerState(*prompt, *self.form))
        self.kept, self.late_bytes = self.inner.kept, self.inner.nbytes
        self.inner.update(keys[:, :, self.prompt :], values[:, :, self.prompt :])


def check_lazy(parameters: object, without: str) -> None:
    """UserError for values that cannot tell lazy layers; `without` says what delta=null does."""
    choice("variant", parameters.variant, ("prefill", "decode"))
    at_least("sinks", parameters.sinks, 0)
    at_least("window", parameters.window, 1)
    at_least("w_last", parameters.w_last, 1)
    delta = parameters.delta
    if delta is not None and (not is_number(delta) or not 0 <= delta <= 1):
        raise UserError(f"delta={delta!r} must be a number from 0 to 1, or null to {without}")


@dataclass
class SimLayerKV(Method):
    """SimLayerKV (arXiv 2410.13846): find the lazy layers of this prompt, trim them to sinks and recents.

    A layer's score p is the attention that its queries give to X = sinks and recents, in [0, 1], the mean
    over query heads, through log-sum-exp in float32. The layer is lazy where p > delta, strictly.

    variant="prefill"  eq. 1: the last `w_last` prompt queries, X fixed at the prompt's end. (The paper's
                       listing for flash attention forgets the scale and the causal mask; both are here.)
    variant="decode"   eq. 2, the paper's main tables: the first decoded token's query over prompt and itself.
                       That token still sees the full cache; the next one does not. Nothing is trimmed where
                       the answer has one token.

    delta      a number, published per model; then no ratio or budget is taken for the lazy layers. null: the
               laziest layers are trimmed (ties: the lower layer first), the fewest whose mean over layers is
               at most the ratio or budget asked for. Where trimming all is not enough, r tells.
    window     1024 in text and code. Table 12 counts 1020 beside 4 sinks: window=1020.
    include_current  decode only. true, as the code: the decoded token is one of the window. false: the window
               is prompt tokens only, the decoded token comes on top (the code's 4-bit path).
    others     what happens in the layers that are not lazy: FullKV, or an `Eviction`, which then gets the
               ratio or budget for itself (a budget under sinks + window keeps less than a lazy layer does).
    storage    how trimmed layers are held. `others` has a storage of its own; the YAML points it here.

    r counts the prompt's tokens, so with include_current a lazy layer holds sinks + window - 1 of them.
    """

    variant: str = "prefill"
    delta: float | None = 0.9
    sinks: int = 4
    window: int = 1024
    w_last: int = 32
    include_current: bool = True
    others: Method = field(default_factory=FullKV)
    storage: Storage = field(default_factory=Dense)

    def __post_init__(self):
        check_lazy(self, "trim until a ratio is met")
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
                "delta=null spends the ratio on choosing lazy layers, but the eviction in others= needs it: "
                "give delta a number"
            )
        if not self.include_current and self.variant == "prefill":
            raise UserError("include_current=false is about the first decoded token: it needs variant=decode")
        refuse_joint(self.storage, "SimLayerKV")
        if evicts:
            if self.others.granularity == "kv_head":
                refuse_union(self.storage, "granularity=kv_head")
        else:
            refuse_joint(self.others.storage, "SimLayerKV")
            refuse_union(self.storage, "SimLayerKV over FullKV")
        self.takes_budget = evicts or self.delta is None
        if self.variant == "prefill":
            self.needs = Needs(window=self.w_last) | self.others.needs
        else:
            self.compress_at, self.full_cache_tokens = "first_decode", 2

    @property
    def minimum_budget(self) -> int:
        return self.others.minimum_budget

    @property
    def layerwise(self) -> bool:
        return self.delta is not None

    @property
    def divisible(self) -> bool:
        return False  # lazy layers keep the same whatever the budget

    def floor(self, n: int, num_layers: int) -> int:
        return self.others.floor(n, num_layers) if self.delta is not None else min(n, self.sinks + self.recent)

    @property
    def recent(self) -> int:
        """Prompt tokens of a lazy layer's window."""
        return self.window - 1 if self.variant == "decode" and self.include_current else self.window

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if self.delta is not None:
            return super().compress(state, budget)
        count = len(state.layers)
        if self.variant == "decode":
            verdict = Verdict(count, self.decoding_score, lambda scores: self._stores(scores, state.n, budget))
            return [FirstDecodeLayer(layer, verdict) for layer in state.layers]
        stores = self._stores([self.score(layer).item() for layer in state.layers], state.n, budget)
        return [store(layer) for store, layer in zip(stores, state.layers, strict=True)]

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.delta is None:
            raise UserError("delta=null compares all layers with each other: one layer alone needs a number")
        if self.variant == "decode":
            return FirstDecodeLayer(layer, Verdict(1, self.decoding_score, self._stores))
        if self.trims([self.score(layer).item()])[0]:
            return self._trim(layer)
        return self.others.compress_layer(layer, index, num_layers, budget)

    def score(self, layer: LayerState) -> Tensor:
        """p of eq. 1, a float32 scalar: the last `w_last` prompt queries."""
        queries = layer.queries[:, -self.w_last :].contiguous()
        return self._score(queries, layer.keys, layer.scaling, self.window)

    def decoding_score(self, queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
        """p of eq. 2: queries [num_attention_heads, 1, head_dim] of the newest of the n + 1 keys."""
        return self._score(queries, keys, scaling, self.recent + 1)

    def _score(self, queries: Tensor, keys: Tensor, scaling: float, recent: int) -> Tensor:
        chosen = sinks_and_recent(keys.shape[1], self.sinks, recent, keys.device)[0]
        return attention_mass(queries, keys, scaling, chosen).mean().clamp(0, 1)

    def lazy(self, scores: list[float], n: int = 0, budget: int = 0) -> list[bool]:
        """Which layers are lazy; n and budget count without a delta only."""
        if self.delta is not None:
            return [score > self.delta for score in scores]
        count = layers_to_trim(n, self.sinks + self.recent, budget, len(scores))
        laziest = sorted(range(len(scores)), key=lambda layer: (-scores[layer], layer))[:count]
        return [layer in laziest for layer in range(len(scores))]

    def trims(self, scores: list[float], n: int = 0, budget: int = 0) -> list[bool]:
        """Which layers are trimmed: the lazy ones."""
        return self.lazy(scores, n, budget)

    def _stores(self, scores: list[float], n: int = 0, budget: int = 0) -> list:
        full = partial(self.others.compress_layer, index=0, num_layers=1, budget=0)  # FullKV reads none of them
        return [self._trim if trim else full for trim in self.trims(scores, n, budget)]

    def _trim(self, layer: LayerState) -> LayerCache:
        return self.storage.store(layer, trimmed(layer, self.sinks, self.recent))


def trimmed(layer: LayerState, sinks: int, recent: int) -> Selection:
    """The first `sinks` and last `recent` tokens of a layer; all of them, each once, where the two meet."""
    if layer.n <= sinks + recent:
        return Selection.everything(layer)
    return Selection(sinks_and_recent(layer.n, sinks, recent, layer.keys.device), sinks + recent)


def layers_to_trim(n: int, short: int, budget: int, num_layers: int) -> int:
    """The fewest of `num_layers` layers to trim from n to `short` tokens for a mean of at most `budget`.

    All of them where even that is above the budget; none where trimming frees nothing.
    """
    if short >= n or budget >= n:
        return 0
    return min(num_layers, -(-num_layers * (n - budget) // (n - short)))
