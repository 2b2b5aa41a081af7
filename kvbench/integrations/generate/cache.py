"""A `Cache` of transformers that compresses the prompt in the pass that reads it, and decodes from what is left."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import AttendingLayer, LayerCache
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.passes import num_layers
from kvbench.evaluation.settings import Setting
from kvbench.integrations.generate.setting import check_plan, setting_of
from kvbench.methods import LayerState, Method, PrefillState
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.rope import Rope
from kvbench.prefill import ContextFrame
from kvbench.prefill.full import CaptureLayer, give_projections


class CompressingLayer(AttendingLayer):
    """One layer of a CompressedCache: captures the prompt, then answers from `inner`, its compressed cache."""

    def __init__(self, cache: "CompressedCache", capture: CaptureLayer):
        super().__init__()
        self.cache, self.capture = cache, capture
        self.inner: LayerCache | None = None

    @torch.no_grad()
    def append(self, keys: Tensor, values: Tensor) -> None:
        if keys.shape[0] != 1:
            raise UserError(f"a batch of {keys.shape[0]} sequences: a CompressedCache holds one (no beams, no batch)")
        if self.inner is None:
            self.cache.begin(keys.shape[2])
            self.capture.append(keys, values)
            return
        if keys.shape[2] > 1 and not self.inner.takes_blocks:
            raise UserError(
                f"{self.cache.setting.label} takes one token at a time after the prompt, not {keys.shape[2]}: "
                "give generate the whole prompt and a new cache"
            )
        self.inner.update(keys, values)

    @torch.no_grad()
    def attend(self, query: Tensor, scaling: float) -> Tensor:
        if self.inner is not None:
            return self.inner.attend(query, scaling)
        out = self.capture.attend(query, scaling)
        if self is self.cache.layers[-1]:
            self.cache.compress()
        return out

    def crop(self, max_length: int) -> None:
        raise UserError("a CompressedCache cannot give tokens back, as assisted decoding asks: decode without it")

    def reset(self) -> None:
        raise UserError("a CompressedCache is of one prompt: make a new one")


class CompressedCache(Cache):
    """A cache for `model.generate(…, past_key_values=cache)` that keeps what a method chooses of the prompt.

    The first forward pass reads the prompt with full attention and compresses it, each layer as soon as it was read
    where the method allows that; the first new token follows from that pass, as in kvbench's harness. What further
    passes read (new tokens, further turns of a chat) attends to what is left, at true positions. One sequence,
    without padding.

    The model's attention must be kvbench's, one of transformers' attention functions: `kvbench.compress` sets it for a
    block; `model.set_attn_implementation("kvbench")`, or loading with it, for good.

    setting   the method with its ratio or budget, of kvbench.integrations.generate.setting_of.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        method: str | Method | Setting,
        ratio: float | None = None,
        budget: int | None = None,
        overrides: Sequence[str] = (),
    ):
        if model.config._attn_implementation != ATTENTION:
            raise UserError(
                f"the model's attention is {model.config._attn_implementation!r}: `with kvbench.compress(…)` sets "
                f"kvbench's for a block, model.set_attn_implementation({ATTENTION!r}) for good"
            )
        self.setting = method if isinstance(method, Setting) else setting_of(method, ratio, budget, overrides)
        self.caches: list[LayerCache] = []  # one for each layer, once the prompt was read
        self.full_bytes = 0  # of FullKV for the prompt
        count, rope, needs = num_layers(model), Rope.of(model), self.setting.method.needs
        self._stream = None
        release = self._take if self.setting.method.streams else None
        captures = [CaptureLayer(needs, rope, release, index, count) for index in range(count)]
        give_projections(captures, model, needs)
        super().__init__(layers=[CompressingLayer(self, capture) for capture in captures])

    def begin(self, n: int) -> None:
        """A prompt of n tokens arrives at a layer; the first one decides the budget."""
        if self.full_bytes or self._stream or hasattr(self, "budget"):
            return
        method, layers = self.setting.method, len(self.layers)
        self.budget = self.setting.budget_at(n, layers)
        check_plan(self.setting, n, layers, self.budget)
        if method.streams:
            self._stream = method.layer_stream(layers, self.budget)

    @torch.no_grad()
    def _take(self, layer: LayerState) -> None:
        self._prepare(layer)
        self._stream.take(layer)

    def _prepare(self, layer: LayerState) -> None:
        self.full_bytes += layer.nbytes
        if self.setting.method.needs.context:
            layer.context = ContextFrame().span(layer.n)

    @torch.no_grad()
    def compress(self) -> None:
        """Make the layer caches, now that every layer has read the prompt."""
        if self._stream is not None:
            self._stream.finish(lambda layer: None)
            self.caches = self._stream.caches
        else:
            states = [layer.capture.state for layer in self.layers]
            for state in states:
                self._prepare(state)
            self.caches = self.setting.method.compress(PrefillState(states, torch.empty(0)), self.budget)
        self._bytes = [cache.nbytes for cache in self.caches]
        for layer, cache in zip(self.layers, self.caches, strict=True):
            layer.inner, layer.capture = cache, None
        self._stream = None

    @property
    def ratio(self) -> ReserveRatio:
        """What is kept of the prompt: r, r1, r2, r3 and r_bytes, as in a record. UserError before a prompt was read."""
        if not self.caches:
            raise UserError("this cache has read no prompt yet")
        stored = sum(
            before if cache.late_bytes is None else cache.late_bytes
            for cache, before in zip(self.caches, self._bytes, strict=True)
        )
        return ReserveRatio.of([cache.kept for cache in self.caches], stored, self.full_bytes)
