"""Eviction while the prompt is read: KeyDiff's processing of a prompt block after block."""

from dataclasses import field

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.kept_positions import kept_positions
from kvbench.errors import UserError
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.base.method import Method
from kvbench.methods.eviction.decode_compression import whole_tokens
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.eviction.interval_layer import interval_layer
from kvbench.methods.facts import values
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.keydiff import KeyDiff
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import KeptLayer
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import EvictingPrefill, FullPrefill, LayerState, PrefillPlan
from kvbench.utils.checked import Positive, checked


@checked
class ChunkedEviction(Method):
    """Cut each layer to the budget after every `chunk` tokens of the prompt, as `policy` would after a prefill.

    A chunk attends to the earlier kept tokens, so that no layer holds more than the budget and a chunk, and the first
    generated token may differ from FullKV's. Kept tokens are scored as if they were the prompt; scorings by the last
    queries see the question's queries only in the last chunk.

    policy   an eviction with the same budget in all layers and heads, whose scoring works while decoding, too. If it
             has decode_compression, the cache is also cut while decoding.
    chunk    tokens that are read at a time. Prompts up to this length are cut once, as by `policy`.

    Source: Park et al. 2025, arXiv 2504.15364 (KeyDiff).
    """

    short = values(chunk=16)

    policy: Eviction = field(default_factory=lambda: Eviction(scoring=KeyDiff()))
    chunk: Positive = 128

    compress_at = "in_prefill"
    full_cache_tokens = 0  # chunks after the first have not seen all tokens
    layerwise = False  # a layer's later chunks depend on what the layers below it dropped

    def __post_init__(self) -> None:
        policy = self.policy
        parts = (type(policy) is Eviction, policy.allocation == Uniform(), policy.heads == EqualHeads())
        if not all(parts) or policy.storage != Dense() or policy.granularity == "query_head":
            raise UserError(
                "ChunkedEviction drops the same number of tokens of each KV head from its own store: its policy needs "
                f"to be an Eviction with allocation Uniform, equal heads, dense storage and granularity=kv_head or "
                f"layer, not {type(policy).__name__} with {type(policy.allocation).__name__}, "
                f"{type(policy.heads).__name__}, {type(policy.storage).__name__} and {policy.granularity}"
            )
        if not policy.scoring.while_decoding:
            raise UserError(
                f"{type(policy.scoring).__name__} reads what only the prefill of a whole prompt observes: it cannot "
                "score the tokens that are left"
            )
        if policy.decode_compression is not None and policy.compress_at != "prefill_end":
            raise UserError("ChunkedEviction cuts the prompt: decode_compression.prompt must be cut")
        self.needs, self.takes_fractions, self.ratio_of = policy.needs, policy.takes_fractions, policy.ratio_of

    @property
    def minimum_budget(self) -> int:
        return self.policy.minimum_budget

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return self.policy.least_share(element_bytes, layer)

    @property
    def batches(self) -> bool:
        return self.policy.batches

    def plan(self, n: int, num_layers: int, budget: float) -> PrefillPlan:
        if budget >= n:
            return FullPrefill()
        tokens = whole_tokens(budget)

        def keep(layer: LayerState) -> Tensor | None:
            return self.policy.select(layer, layer.index, num_layers, tokens).indices

        return EvictingPrefill(self.chunk, f"{self.policy} at {tokens}", keep)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if layer.positions is None:  # the whole prompt
            return self.policy.compress_layer(layer, index, num_layers, budget)
        positions = kept_positions(layer.positions, layer.seen, layer.marks)
        left, when = Selection(None, whole_tokens(budget), histogram=positions), self.policy.decode_compression
        if when is None:
            return DenseLayer(layer.keys, layer.values, layer.seen, left.kept(layer))

        def keep(state: LayerState, target: int, seen: int) -> Tensor | None:
            return self.policy.keep(state, index, num_layers, target, seen, when.slots)

        return interval_layer(when, layer, budget, lambda *_: left, keep, self.needs)
