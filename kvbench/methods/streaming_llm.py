"""StreamingLLM (Xiao et al. 2024, arXiv 2309.17453): attention sinks and a window of recent tokens."""

from dataclasses import field
from typing import Literal

from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.eviction.decode_compression import DecodeCompression
from kvbench.methods.eviction.interval_layer import interval_layer
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection, sinks_and_recent
from kvbench.methods.storage.base import Storage, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.ops.attention import dense_attention
from kvbench.ops.rope import Rope, fixed_rotation
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.checked import NonNegative, Positive, checked


@checked
class StreamingLLM(Method):
    """Keep the first `sinks` tokens and the last budget - sinks tokens of every layer.

    Source: Xiao et al. 2024, arXiv 2309.17453.

    sinks      number of first tokens; null with recent=R keeps the last R tokens and the first budget - R, as in
               PyramidKV's needle-in-a-haystack script.
    decode     grow: evict once, after prefill, then let the cache grow, as the papers' baselines do.
               evict: keep the cache at the budget; each decoded token replaces the oldest recent token.
    rope       original: keys keep the positions of their tokens. rolling: a key's position is its slot in the cache,
               so positions stay below the budget; requires decode=evict.

    decode_compression   with decode=grow: when the cache is brought back to its sinks and recent tokens.

    The released code is decode=evict with rope=rolling. The prompt is prefilled with full attention, as in the
    authors' chat demo.
    """

    short = values(recent=8)

    sinks: NonNegative | None = 4
    decode: Literal["grow", "evict"] = "grow"
    rope: Literal["original", "rolling"] = "original"
    storage: Storage = field(default_factory=Dense)
    recent: Positive | None = None
    decode_compression: DecodeCompression | None = None

    def __post_init__(self) -> None:
        if (self.sinks is None) == (self.recent is None):
            raise UserError(
                f"sinks={self.sinks} and recent={self.recent}: set exactly one of the two; the other (null) takes the "
                "rest of the budget"
            )
        refuse_union(self.storage, "StreamingLLM")
        self.needs = self.storage.needs
        if self.rope == "rolling" and self.decode == "grow":
            raise UserError("rope=rolling counts slots of a cache of constant size: it needs decode=evict")
        if self.decode == "evict" and self.storage != Dense():
            raise UserError("decode=evict overwrites tokens in place: it needs dense storage")
        if self.decode_compression is not None:
            if self.decode == "evict" or self.storage != Dense():
                raise UserError(
                    "decode_compression drops tokens of a growing cache: it needs decode=grow and dense storage"
                )
            self.takes_fractions, self.ratio_of, self.compress_at = self.decode_compression.protocol

    @property
    def minimum_budget(self) -> int:
        return (self.recent or 0 if self.sinks is None else self.sinks) + 1

    @property
    def layerwise(self) -> bool:
        return not self.storage.joint

    def select(self, layer: LayerState, budget: int) -> Selection:
        """The sinks and the recent tokens, the same set for all heads."""
        if budget >= layer.n:
            return Selection.everything(layer)
        sinks = self._sinks(budget)
        return Selection(sinks_and_recent(layer.n, sinks, budget - sinks, layer.keys.device), budget)

    def _keep(self, state: LayerState, target: int, seen: int) -> Tensor | None:
        return self.select(state, max(target, self.minimum_budget)).indices

    def _sinks(self, budget: int) -> int:
        return budget - (self.recent or 0) if self.sinks is None else self.sinks

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if self.storage.joint:
            layers = [layer.stored for layer in state.layers]
            return self.storage.store_all(layers, [self.select(layer, budget) for layer in layers])
        return super().compress(state, budget)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.decode_compression is not None:
            return interval_layer(
                self.decode_compression, layer, budget, self.select, self._keep, Needs(), batches=True
            )
        selection = self.select(layer, budget)
        if self.decode == "grow":
            return self.storage.store(layer.stored, selection)
        rope = fixed_rotation(layer.rope, "rope=rolling") if self.rope == "rolling" else None
        return SlidingLayer(
            selection.of(layer.keys),
            selection.of(layer.values),
            layer.n,
            Kept.tokens(
                budget, selection.count(layer), layer.n, layer.num_key_value_heads, positions=selection.positions(layer)
            ),
            budget,
            self._sinks(budget),
            rope,
        )


class SlidingLayer(LayerCache):
    """A cache of at most `budget` tokens: the first `sinks`, and the most recent tokens in a ring buffer.

    With `rope`, a key's position is its slot in the cache, as in the released code. Attention depends only on relative
    positions, so the recent keys keep their rotation and the sinks are rotated forward by the number of evicted tokens,
    which puts them directly before the recent tokens. No key changes before the first eviction.
    """

    batches = True

    def __init__(
        self, keys: Tensor, values: Tensor, seen: int, kept: Kept, budget: int, sinks: int, rope: Rope | None
    ) -> None:
        """keys, values [num_key_value_heads, len, head_dim] in order of position, len <= budget."""
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None].clone()), Growing(values[None].clone())  # written in place
        self.budget, self.sinks, self.rope = budget, sinks, rope
        self.sink_keys: Tensor | None = None  # [num_key_value_heads, sinks, head_dim] at their original positions
        self.evicted = seen - keys.shape[1]
        self.oldest = 0  # ring slot of the oldest recent token
        self._roll()

    def tensors(self) -> list[Tensor]:
        return [self.k.buffer, self.v.buffer] + ([] if self.sink_keys is None else [self.sink_keys])

    @property
    def filled_bytes(self) -> int:
        return filled(self.k, self.v, self.sink_keys)

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.k.length < self.budget:
            self.k.append(keys)
            self.v.append(values)
            return
        slot = self.sinks + self.oldest
        self.k.view[:, :, slot] = keys[:, :, 0]
        self.v.view[:, :, slot] = values[:, :, 0]
        self.oldest = (self.oldest + 1) % (self.budget - self.sinks)
        self.evicted += 1
        self._roll()

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return dense_attention(query, self.k.view, self.v.view, scaling)

    def _roll(self) -> None:
        """Rotate the sinks from their original positions forward by the number of evicted tokens."""
        if self.rope and self.evicted:
            if self.sink_keys is None:
                self.sink_keys = self.k.view[0, :, : self.sinks].clone()
            self.k.view[0, :, : self.sinks] = self.rope.move(self.sink_keys, self.evicted)
