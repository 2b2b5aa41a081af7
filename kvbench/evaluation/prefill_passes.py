"""From a prompt to a setting's layer caches: one prefill for many settings, or one per setting with little memory."""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import StoredLayer, held_bytes, storage_bytes
from kvbench.cache.beside import Beside
from kvbench.cache.held import Taken
from kvbench.cache.kept_positions import Marks
from kvbench.cache.linear_state import LinearState
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.methods.base.method import Method, as_given
from kvbench.methods.base.returned import checked_caches
from kvbench.models.layer_kinds import compressed_layers, kinds_at
from kvbench.prefill import ContextFrame, LayerState, Needs, PrefillPlan, Reconstruction, Span, reconstruct
from kvbench.utils.device import device_peak, finish, reset_device_peak, wait_for


@dataclass
class Compressed:
    """A prompt compressed under one setting, ready to decode.

    Peak bytes count keys and values of uncompressed layers and the tensors of layer caches; observations and
    activations are in the allocator's peak only.
    """

    caches: list[StoredLayer]
    logits: Tensor  # [vocab_size]
    full_bytes: int  # of FullKV for the same prompt, in all layers
    element_bytes: int  # of one of the model's numbers
    prefill_seconds: float
    compress_seconds: float
    live: Beside  # uncompressed K and V, counted until the answer is complete, whether they are still held or not
    peak_bytes: int  # largest counted so far
    device_peak: int | None  # of the allocator, model included, up to here; None on a CPU
    second_pass_seconds: float = 0.0  # of compress_seconds: reading the context again, once for all settings that do

    def __post_init__(self) -> None:
        self._layer_bytes = [cache.nbytes for cache in self.caches]  # before any token is decoded
        held = list(zip(self._layer_bytes, self.caches, strict=True))
        # of these, the bytes of layers that no method compresses
        self.window_bytes = sum(layer for layer, cache in held if cache.kept is None)
        self._layer_bytes_16 = [cache.bytes_in_16_bits(self.element_bytes) for cache in self.caches]
        windows = [layer for layer, (_, cache) in zip(self._layer_bytes_16, held, strict=True) if cache.kept is None]
        narrow = min(self.element_bytes, 2)
        # FullKV's as if the model's numbers had two bytes each
        self.full_bytes_16 = (self.full_bytes - self.window_bytes) * narrow // self.element_bytes + sum(windows)
        # bytes that do not grow with the text; they include FullKV's if every layer has a sliding window
        self.fixed_bytes = sum(layer for layer, cache in held if cache.fixed)
        # of both, the states of layers with linear attention
        self.state_bytes = sum(layer for layer, cache in held if isinstance(cache, LinearState))

    def stored_bytes(self, caches: Sequence[StoredLayer]) -> int:
        """Bytes that `caches` (these caches or copies of them) hold of the prompt, without decoded tokens.

        Call it after decoding: a cache that compresses the prompt while it decodes knows its bytes only then.
        """
        return sum(
            before if cache.late_bytes is None else cache.late_bytes
            for cache, before in zip(caches, self._layer_bytes, strict=True)
        )

    def r_bytes_16(self, caches: Sequence[StoredLayer]) -> float:
        """`stored_bytes` over `full_bytes`, both as if the model's numbers had two bytes each."""
        stored = sum(
            before if cache.late_bytes_16 is None else cache.late_bytes_16
            for cache, before in zip(caches, self._layer_bytes_16, strict=True)
        )
        return stored / self.full_bytes_16

    def ratio(self, caches: Sequence[StoredLayer]) -> ReserveRatio:
        """The reserve ratio of the layers that the method compressed; call it after decoding."""
        layers = [cache.kept for cache in caches if cache.kept is not None]
        windows = self.window_bytes
        return ReserveRatio.from_layers(layers, self.stored_bytes(caches) - windows, self.full_bytes - windows)

    def count(self, caches: Sequence[StoredLayer], decode_peak: int) -> int:
        """Peak bytes including decoding with `caches`: call it afterwards.

        decode_peak: most bytes that they held meanwhile, room for further tokens apart. They may have been cut since.
        """
        held = max(held_bytes(caches), decode_peak)
        return max(self.peak_bytes, held + self.live.bytes_without(stored(caches)))

    @torch.inference_mode()
    def copies(self, count: int) -> Iterator[list[StoredLayer]]:
        """The caches for `count` decodings that start from the compressed prompt; the last gets the originals."""
        for _ in range(count - 1):
            yield copy.deepcopy(self.caches)
        yield self.caches


@dataclass(frozen=True)
class SecondPass:
    """Time and memory of reading a context again; part of the compression of every setting that uses its scores."""

    seconds: float
    peak_bytes: int  # counted as in `Compressed`
    device_peak: int  # of the allocator; 0 on a CPU


class SharedPass:
    """One prefill for any number of settings; all layers' K and V stay in memory (`memory=shared`).

    `frame` makes the frame of the context; it is called only if the needs have second passes or the context's place.
    Layers count the tokens that they keep between the positions in `marks` (see `kvbench.cache.kept_positions`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        ids: Tensor,
        plan: PrefillPlan,
        needs: Needs,
        frame: Callable[[], ContextFrame] = ContextFrame,
        marks: Marks = (),
    ):
        reset_device_peak(model)
        self.model, self.tokens = model, len(ids)
        started = time.perf_counter()
        self.state = plan.run(model, ids, needs)
        wait_for(model)
        self.seconds = time.perf_counter() - started
        self.prefill_peak = device_peak(model)
        span = frame().span(len(ids)) if needs.context else None
        for layer in self.state.layers:
            layer.context, layer.marks = span, marks
        self.second = {how: self._read_again(ids, how, frame()) for how in needs.reconstructions}
        self.state.settle()

    def _read_again(self, ids: Tensor, how: Reconstruction, frame: ContextFrame) -> SecondPass:
        reset_device_peak(self.model)
        started = time.perf_counter()
        peak_bytes = reconstruct(self.model, ids, self.state, how, frame)
        wait_for(self.model)
        return SecondPass(time.perf_counter() - started, peak_bytes, device_peak(self.model) or 0)

    @torch.inference_mode()
    def compress(self, method: Method, budget: int | float) -> Compressed:
        reset_device_peak(self.model)  # so that one setting's peak is not the next one's
        started = time.perf_counter()
        made = method.compress(self.state.requested(method.needs), as_given(budget))
        caches = self.state.whole(checked_caches(made, method, len(self.state.layers), self.tokens))
        wait_for(self.model)
        second = [self.second[how] for how in method.needs.reconstructions]
        again = sum(part.seconds for part in second)
        seconds = time.perf_counter() - started + again
        live = [x for layer in self.state.layers for x in layer.tensors()]
        live += stored(self.state.fixed_layers.values())
        peak = max(self.state.peak_bytes, storage_bytes(live + stored(caches)), *(part.peak_bytes for part in second))
        device = max([self.prefill_peak or 0, *(part.device_peak for part in second)]) or None
        full, logits = self.state.nbytes + self.state.fixed_bytes, self.state.logits
        element = self.model.dtype.itemsize
        return Compressed(caches, logits, full, element, self.seconds, seconds, Beside(live), peak, device, again)


class StreamedPass:
    """A prefill for one setting that compresses each layer as soon as its attention is computed (`memory=stream`).

    At most one uncompressed layer is held, or those that wait for later layers to read them, plus the tensors of the
    method's `layer_stream`. The method must stream.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        ids: Tensor,
        plan: PrefillPlan,
        frame: Callable[[], ContextFrame] = ContextFrame,
        marks: Marks = (),
    ):
        self.model, self.ids, self.plan, self.frame, self.marks = model, ids, plan, frame, marks

    def compress(self, method: Method, budget: int | float) -> Compressed:
        reset_device_peak(self.model)
        context = self.frame().span(len(self.ids)) if method.needs.context else None
        stream = Stream(method, num_layers(self.model, len(self.ids)), budget, context, self.marks)
        started = time.perf_counter()
        state = self.plan.run(self.model, self.ids, method.needs, stream)
        wait_for(self.model)
        seconds = time.perf_counter() - started - stream.seconds
        started = time.perf_counter()
        stream.peak_bytes = 0  # the pass has counted what was held so far, with its other layers
        stream.finish()
        wait_for(self.model)
        stream.seconds += time.perf_counter() - started
        caches = checked_caches(stream.layers.caches, method, stream.num_layers, len(self.ids))
        return Compressed(
            state.placed(caches, state.fixed_layers),
            state.logits,
            stream.full_bytes + state.fixed_bytes,
            self.model.dtype.itemsize,
            seconds,
            stream.seconds,
            Beside(),
            max(state.peak_bytes, stream.peak_bytes + state.fixed_bytes),
            device_peak(self.model),
        )


def prefill_pass(
    model: PreTrainedModel,
    ids: Tensor,
    plan: PrefillPlan,
    methods: Sequence[Method],
    memory: str,
    frame: Callable[[], ContextFrame] = ContextFrame,
    marks: Marks = (),
) -> SharedPass | StreamedPass:
    """The pass over ids [n] that methods with one plan share, with all their observations.

    `memory` is shared or stream.
    """
    if memory == "stream":
        return StreamedPass(model, ids, plan, frame, marks)
    return SharedPass(model, ids, plan, reduce(or_, (method.needs for method in methods)), frame, marks)


class Stream:
    """Receives layer states from a prefill, compresses each, and counts the bytes held meanwhile.

    The prefill adds what its other layers hold: tokens in sliding windows, states, layers that are not yet complete.
    """

    def __init__(
        self,
        method: Method,
        num_layers: int,
        budget: int | float,
        context: Span | None = None,
        marks: Marks = (),
    ):
        self.context, self.marks = context, marks  # of every layer's state
        self.num_layers = num_layers
        self.layers = method.layer_stream(num_layers, as_given(budget))
        self.full_bytes = self.peak_bytes = 0
        self.seconds = 0.0

    def __call__(self, layer: LayerState) -> Taken:
        layer.context, layer.marks = self.context, self.marks
        before = self.count(layer)
        finish(layer.keys.device)
        started = time.perf_counter()
        self.layers.take(layer)
        finish(layer.keys.device)
        self.seconds += time.perf_counter() - started
        self.full_bytes += layer.nbytes
        return Taken(max(before, self.count(layer)), storage_bytes(self.layers.tensors()))

    @torch.inference_mode()
    def finish(self) -> None:
        """Compress the layers whose method needs all layers first."""
        self.layers.finish(self.count)

    def count(self, layer: LayerState) -> int:
        """Note and return the bytes held beside a whole layer, with it."""
        held = storage_bytes([*layer.tensors(), *self.layers.tensors()])
        self.peak_bytes = max(self.peak_bytes, held)
        return held


def num_layers(model: PreTrainedModel, n: int) -> int:
    """The layers that methods compress of a prompt of n tokens: the layers that keep keys and values of all tokens."""
    return len(compressed_layers(kinds_at(model.config, n)))


def check_layers(model: PreTrainedModel, n: int, what: str) -> None:
    """Raise UserError if no layer keeps all of n tokens, of which `what` reads every layer that does."""
    if not num_layers(model, n):
        raise UserError(
            f"{what} has no layers to read: every layer of this model has a sliding window, which {n} tokens fill"
        )


def stored(caches: Iterable[StoredLayer]) -> list[Tensor]:
    return [tensor for cache in caches for tensor in cache.tensors()]
