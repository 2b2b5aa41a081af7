"""A `Cache` of transformers that compresses the prompt in the pass that reads it, and decodes from what is left."""

import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import AttendingLayer, LayerCache, attend_one_by_one
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.prefill_passes import Compressed, Stream, num_layers
from kvbench.evaluation.settings import Setting
from kvbench.integrations.generate.setting import check_plan, setting_of
from kvbench.methods import Method
from kvbench.methods.base import as_given
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.rope import Rope
from kvbench.prefill import ContextFrame
from kvbench.prefill.full import CaptureLayer, PromptLayers


class CompressingLayer(AttendingLayer):
    """One layer of a CompressedCache: first `inner` captures the prompt, then it is the compressed cache."""

    def __init__(self, cache: "CompressedCache", index: int):
        super().__init__()
        self.cache, self.index = cache, index
        self.inner: AttendingLayer | None = None
        self.waiting: tuple[Tensor, Tensor] | None = None  # new keys and values of a cache that takes no blocks

    @property
    def windowed(self) -> bool:
        return self.inner is not None and self.inner.windowed

    @torch.no_grad()
    def append(self, keys: Tensor, values: Tensor) -> None:
        t = keys.shape[2]
        if keys.shape[0] != 1:
            raise UserError(f"a batch of {keys.shape[0]} sequences: a CompressedCache holds one (no beams, no batch)")
        if self.inner is None:
            self.cache.begin(t)
        assert self.inner is not None, "`begin` set it"
        if self.cache.compressed and t > 1 and not self.inner.takes_blocks:
            self.waiting = keys, values
        else:
            self.inner.update(keys, values)

    @torch.no_grad()
    def attend(self, query: Tensor, scaling: float) -> Tensor:
        assert self.inner is not None, "`append` comes first"
        if self.waiting:
            (keys, values), self.waiting = self.waiting, None
            return attend_one_by_one(self.inner, keys, values, query, scaling)
        out = self.inner.attend(query, scaling)
        if self.cache.compressed is None and self is self.cache.layers[-1]:
            self.cache.compress()
        return out

    @property
    def shape(self) -> NoReturn:
        """Every attention function but kvbench's asks for it first, of what it takes for the keys."""
        raise UserError(
            "a CompressedCache reached a model whose attention is not kvbench's: hand it to the model that it was made "
            "for, within its kvbench.compress block"
        )

    def crop(self, max_length: int) -> None:
        raise UserError("a CompressedCache cannot remove tokens, which assisted decoding needs: decode without it")

    def reset(self) -> None:
        raise UserError("a CompressedCache holds one prompt: make a new one")


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
        if not isinstance(model, PreTrainedModel):
            raise UserError(f"model must be a model of transformers, a PreTrainedModel, not {type(model).__name__}")
        if model.config._attn_implementation != ATTENTION:
            raise UserError(
                f"the model's attention is {model.config._attn_implementation!r}: `with kvbench.compress(…)` sets "
                f"kvbench's for a block, model.set_attn_implementation({ATTENTION!r}) permanently"
            )
        self.setting = method if isinstance(method, Setting) else setting_of(method, ratio, budget, overrides)
        self.compressed: Compressed | None = None  # once the prompt was read
        self._model = model
        self._prompt: PromptLayers | None = None
        self._stream: Stream | None = None
        self._config = model.config
        count = model.config.get_text_config().num_hidden_layers
        super().__init__(layers=[CompressingLayer(self, index) for index in range(count)])

    @property
    def caches(self) -> list[LayerCache]:
        """The compressed cache of each layer; empty before a prompt was read."""
        return [] if self.compressed is None else self.compressed.caches

    def check_model(self, model: PreTrainedModel) -> None:
        """Raise UserError for another model than the one that the cache was made for."""
        if model.config is not self._config:
            raise UserError("this CompressedCache was made for another model: make one for this model")

    def begin(self, n: int) -> None:
        """Prepare the layers for a prompt of n tokens, which decides the budget."""
        if (chunk := chunk_of_prefill()) is not None:
            raise UserError(
                f"prefill_chunk_size={chunk}: the prompt is compressed in the pass that reads it, so it must be "
                "read in one: leave it out (the harness has prefill.chunk=)"
            )
        model, method = self._model, self.setting.method
        layers = num_layers(model, n)
        self._budget = self.setting.budget_at(n, layers)
        check_plan(self.setting, n, layers, self._budget)
        self._span = ContextFrame().span(n) if method.needs.context else None
        self._stream = Stream(method, layers, self._budget, self._span) if method.streams else None
        make = partial(CaptureLayer, method.needs, Rope.of(model), self._stream)
        self._prompt = PromptLayers(model, n, method.needs, make)
        for layer, inner in zip(self.layers, self._prompt.all, strict=True):
            layer.inner = inner

    def compress(self) -> None:
        """Make the layer caches, now that every layer has read the prompt."""
        assert self._prompt is not None, "`begin` made its layers"
        state = self._prompt.state(torch.empty(0), [])
        if self._stream is not None:
            self._stream.layers.finish(self._stream.count)
            made, full = self._stream.layers.caches, self._stream.full_bytes
        else:
            for layer in state.layers:
                layer.context = self._span
            made, full = self.setting.method.compress(state, as_given(self._budget)), state.nbytes
        full += state.window_bytes
        self.compressed = Compressed(state.whole(made), state.logits, full, 0.0, 0.0, [], 0, None)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            layer.inner = cache
        self._model = self._prompt = self._stream = None

    @property
    def ratio(self) -> dict[str, Any]:
        """What is kept of the prompt: r, r1, r2, r3 and r_bytes, as in a record. UserError before a prompt was read."""
        if self.compressed is None:
            raise UserError("this cache has read no prompt yet")
        stored, windows = self.compressed.stored_bytes(self.caches), self.compressed.window_bytes
        layers = [cache.kept for cache in self.caches if cache.kept is not None]
        return ReserveRatio.of(layers, stored - windows, self.compressed.full_bytes - windows).fields(windows)


def chunk_of_prefill() -> int | None:
    """The prefill_chunk_size of the `generate` that is under way; None without one.

    `generate` hands it to no cache and to no hook, so it is read where it is used: in the frame of its prefill.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_prefill" and "generation_config" in frame.f_locals:
            return getattr(frame.f_locals["generation_config"], "prefill_chunk_size", None)
        frame = frame.f_back
    return None
