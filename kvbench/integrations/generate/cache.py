"""A `Cache` of transformers that compresses the prompt in the pass that reads it, and decodes from the rest."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self, SupportsIndex
from weakref import WeakSet, ref

import torch
from torch import nn
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import LayerCache, StoredLayer
from kvbench.cache.beside import Beside
from kvbench.cache.linear_state import LinearState
from kvbench.errors import UserError
from kvbench.evaluation.prefill_passes import Compressed, Stream, num_layers
from kvbench.evaluation.settings import Setting
from kvbench.integrations.generate.layer import TWO_MODES, CompressingLayer, in_one_mode
from kvbench.integrations.generate.running import chunk_of_prefill
from kvbench.integrations.generate.setting import check_plan, setting_of
from kvbench.methods import Method
from kvbench.methods.base.method import as_given
from kvbench.methods.base.returned import checked_caches
from kvbench.models.attention_interface import ATTENTION, restore_registered
from kvbench.models.compiled_in_place import compiled_in_place
from kvbench.models.layer_kinds import LayerKind, kinds_of
from kvbench.models.probe import ropes_of
from kvbench.models.rope_growth import forget_lengths, growth_of
from kvbench.prefill import ContextFrame
from kvbench.prefill.full import CaptureLayer, PromptLayers, layer_of


def named(model: PreTrainedModel) -> str:
    """A model's class and, if it was loaded, where from."""
    return f"{type(model).__name__} {model.config.name_or_path}".rstrip()


class CompressedCache(Cache):
    """A cache for `model.generate(…, past_key_values=cache)` that keeps the part of the prompt that a method chooses.
    From transformers 5.24 on it can also be passed as `cache=`.

    The first forward pass reads the prompt with full attention and compresses it, layer by layer if the method allows
    it; the first new token follows from that pass, as in kvbench's harness. Later passes (new tokens, turns of a chat)
    attend to the compressed prompt, at true positions. A cache holds one sequence, without padding.

    The model must use kvbench's attention function: `kvbench.compress` sets it for a block,
    `model.set_attn_implementation("kvbench")`, or loading with it, permanently.

    method      a name of conf/method, an object of a method's class, or a `Setting`, which has its ratio or budget.
    ratio       share of the prompt's tokens to keep, or
    budget      tokens per layer and head.
    overrides   the method's KEY=VALUE of the command line, e.g. ["method.snapkv.scoring.window=16"].
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
        if compiled_in_place(model):
            raise UserError(
                f"{type(model).__name__} was compiled in place (model.compile()), and compiled code cannot trace a "
                "CompressedCache: use `with kvbench.compress(…)`, in which the model runs uncompiled"
            )
        restore_registered()
        self.setting = method if isinstance(method, Setting) else setting_of(method, ratio, budget, overrides)
        self._compressed: Compressed | None = None
        self._placed: list[StoredLayer] | None = None  # the caches of all layers; None before the prompt was read
        self._model, self._name, self._made_for = model, named(model), ref(model)
        self._attending: WeakSet[nn.Module] = WeakSet()  # modules of this model that have read the prompt
        self._growth, self._tokens = growth_of(model), 0
        ropes_of(model)  # before the model runs
        forget_lengths(model)
        self._prompt: PromptLayers | None = None
        self._stream: Stream | None = None
        self._element_bytes = model.dtype.itemsize
        self.config = model.config
        kinds = kinds_of(model.config)
        super().__init__(layers=[self._layer(index, kind) for index, kind in enumerate(kinds)])
        self._compressing = [layer for layer in self.layers if isinstance(layer, CompressingLayer)]
        self.lowest = self._compressing[0]

    def _layer(self, index: int, kind: LayerKind) -> CompressingLayer | StoredLayer:
        if kind.keeps == "own":
            return CompressingLayer(self, index, kind.readers, kind.latent)
        return layer_of(kind, whole=False)

    @property
    def compressed(self) -> Compressed | None:
        """The compressed prompt with its layers' contents; None before it was read.

        It is made after the whole pass over the prompt: layers with states of fixed size may come after the last layer
        that attends.
        """
        if self._compressed is None and self._placed is not None:
            full = self._full_bytes + self._state.fixed_bytes
            self._compressed = Compressed(
                self._placed, self._state.logits, full, self._element_bytes, 0.0, 0.0, Beside(), 0, None
            )
        return self._compressed

    @property
    def caches(self) -> list[StoredLayer]:
        """The compressed cache of each layer; empty before a prompt was read."""
        return [] if self.compressed is None else self.compressed.caches

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """New tokens of a layer, as the model passes them to any cache."""
        with in_one_mode():  # layers with a sliding window are no CompressingLayer
            return super().update(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A branch that goes on by itself, with the same model and setting."""
        branch = memo[id(self)] = type(self).__new__(type(self))
        memo |= {id(shared): shared for shared in (self._model, self.config, self.setting, self._attending)}
        branch.__dict__ = deepcopy(self.__dict__, memo)
        return branch

    def check_model(self, model: PreTrainedModel) -> None:
        """Raise UserError for another model than the cache's."""
        if model is not self._made_for():
            self.refuse(named(model))

    def check_states(self) -> None:
        """Raise UserError where the model would write into states that were made under torch.inference_mode()."""
        states = (x for layer in self.layers if isinstance(layer, LinearState) for x in layer.tensors())
        if not torch.is_inference_mode_enabled() and any(x.is_inference() for x in states):
            raise UserError(TWO_MODES)

    def check_reader(self, module: nn.Module) -> None:
        """Raise UserError for a module that attends to this cache and is not of its model."""
        if self._prompt is not None and id(module) in self._modules:
            self._attending.add(module)
        if module not in self._attending:
            self.refuse(f"the model of this {type(module).__name__}")

    def refuse(self, other: str) -> NoReturn:
        """Raise UserError for another model."""
        raise UserError(f"this CompressedCache was made for another model, {self._name}, than {other}: make one for it")

    def check_whole(self) -> None:
        """Raise UserError, before a pass, if an error or an interrupt has ended the one before between two layers."""
        unread_prompt = self._prompt is not None and self.lowest.seen > 0
        if unread_prompt or any(layer.seen != self.lowest.seen for layer in self._compressing):
            raise UserError(
                "a pass over this CompressedCache ended before its last layer, after an error or an interrupt: some "
                "layers have tokens that others lack; make a new one"
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raises UserError: a cache belongs to a model and to its method."""
        raise UserError("a CompressedCache cannot be pickled: copy.deepcopy(cache) makes another within this program")

    def check_goes_on(self) -> None:
        """Raise UserError if `generate` leaves this cache for the next token, because it is rotated with other
        frequencies than the keys of the prompt (Phi-3): it would read prompt and answer as one longer prompt."""
        end = self.get_seq_length() + 1
        if self._growth and self._growth.splits(self._tokens, end):
            raise UserError(
                f"{end} tokens after a prompt of {self._tokens}: beyond {self._growth.length} this model uses other "
                f"RoPE frequencies (rope_type={self._growth.kind}), and generate would read the whole text again: end "
                "earlier, or use a longer prompt"
            )

    def begin(self, n: int) -> None:
        """Prepare the layers for a prompt of n tokens, which decides the budget."""
        if (chunk := chunk_of_prefill()) is not None:
            raise UserError(
                f"prefill_chunk_size={chunk}: the prompt is compressed in the pass that reads it, so it must be "
                "read in one: leave it out (the harness has prefill.chunk=)"
            )
        model, method = self._model, self.setting.method
        layers, self._tokens = num_layers(model, n), n
        self._budget = self.setting.budget_at(n, layers)
        check_plan(self.setting, n, layers, self._budget)
        self._span = ContextFrame().span(n) if method.needs.context else None
        self._stream = Stream(method, layers, self._budget, self._span) if method.streams else None
        make = partial(CaptureLayer, method.needs, self._stream)
        self._prompt = PromptLayers(model, n, method.needs, make)
        for index, layer in enumerate(self.layers):
            if isinstance(layer, CompressingLayer):
                layer.inner = self._prompt.all[index]
            else:
                self._prompt.fixed_layers[index] = layer
        self._modules = {id(module) for module in model.modules()}
        self._unread = sum(kind.attends for kind in self._prompt.kinds)

    def attended(self) -> None:
        """Count a layer that has attended to the prompt; after the last one, the prompt is compressed."""
        if self._prompt is not None:
            self._unread -= 1
            if not self._unread:
                self.compress()

    def compress(self) -> None:
        """Make the layer caches; every layer that attends has read the prompt."""
        assert self._prompt is not None, "`begin` made its layers"
        method, layers = self.setting.method, len(self._prompt.captures)
        state = self._prompt.state(torch.empty(0), [])
        if self._stream is not None:
            self._stream.layers.finish(self._stream.count)
            caches, full = self._stream.layers.caches, self._stream.full_bytes
        else:
            for layer in state.layers:
                layer.context = self._span
            caches, full = method.compress(state, as_given(self._budget)), state.nbytes
        caches = checked_caches(caches, method, layers, self._tokens)
        self._state, self._full_bytes = replace(state, layers=[]), full
        self._placed = state.placed(caches, state.fixed_layers)
        for layer, cache in zip(self.layers, self._placed, strict=True):
            if isinstance(layer, CompressingLayer) and isinstance(cache, LayerCache):
                layer.inner = cache
        self._model = self._prompt = self._stream = None
        self._modules = set()

    @property
    def ratio(self) -> dict[str, Any]:
        """The share of the prompt that is kept: r, r1 to r3, r_bytes and r_bytes_16, as in a record.

        Raises UserError before the prompt was read.
        """
        if (compressed := self.compressed) is None:
            raise UserError("this cache has read no prompt yet")
        ratio = compressed.ratio(self.caches).fields(compressed.window_bytes)
        return ratio | {"r_bytes_16": compressed.r_bytes_16(self.caches)}
