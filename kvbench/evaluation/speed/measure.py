"""Measures one setting once, while no other setting has caches: prefill, compress, decode as a batch."""

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import LayerCache, StoredLayer, storage_bytes
from kvbench.cache.beside import Beside
from kvbench.cache.decode_bytes import DecodeBytes, DecodeFigures
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.rows import RowsLayer
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.prefill_passes import Compressed, SharedPass, StreamedPass, num_layers, stored
from kvbench.evaluation.record import decode_figures
from kvbench.evaluation.recorded_steps import recording_of
from kvbench.evaluation.settings import Setting
from kvbench.methods.base.method import Method, as_given
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.facts import forget
from kvbench.utils.device import device_peak, gpus, wait_for


@dataclass(frozen=True)
class Footprint:
    """Counted bytes of one sequence's keys and values, compressed or not."""

    full: int  # FullKV of the prompt
    prefilled: int  # held after the prompt is compressed
    kept: int  # of the prompt, even if a method compresses it only while decoding: the numerator of r_bytes
    decoded: int  # held after the last token
    peak: int  # at the largest moment before the batch decodes: of prefill, compression and `first_decode`
    on_gpus: Mapping[torch.device, int] = field(default_factory=dict)  # where `prefilled` lies
    states: int = 0  # of them, in states of fixed size
    windows: int = 0  # of the prompt, in layers that no method compresses: part of `full` and `kept`
    # most held while the batch decodes, room for further tokens apart: a cache may be cut before its end
    decode_peak: int = 0
    joining: int = 0  # most held while a batch joins its caches: the layer that is joined exists twice

    def peak_of(self, batch: int) -> int:
        """Peak bytes of a batch: its last prompt is compressed beside the others, or all are joined, or decode."""
        decoding = max(self.decoded, self.decode_peak, self.joining if batch > 1 else 0)
        return max((batch - 1) * self.prefilled + self.peak, batch * decoding)


@dataclass(frozen=True)
class Measurement:
    """Times and bytes of one setting, once. The prompt is prefilled once; a batch is copies of its caches."""

    prefill_seconds: float  # of one sequence, with the observations that the method reads
    compress_seconds: float  # of one sequence
    allocation_seconds: float | None  # of one sequence: to compute each layer's tokens; None: the method has no rule
    decode_seconds: float  # of the batch, for `decode_steps` passes
    decode_steps: int  # each gives every sequence one token; the first token comes from prefill
    tokens: tuple[tuple[int, ...], ...]  # of each sequence
    layers: tuple[Kept, ...]
    footprint: Footprint
    memory: str  # stream: layers were compressed one after the other during prefill; shared: all at its end
    figures: DecodeFigures  # of one sequence
    engine: str  # graph, fused or eager, see `Generation.engine`
    stacked_layers: int  # layers that attend once for the whole batch; the others attend sequence by sequence
    peak_device_bytes: int | None  # of the allocator, model included; None on a CPU


@torch.inference_mode()
def measure(
    model: PreTrainedModel,
    ids: Tensor,
    setting: Setting,
    batch: int,
    new_tokens: int,
    beside: Footprint | None = None,
    engine: str = "auto",
) -> Measurement:
    """Measure ids [n] once. Every sequence decodes `new_tokens` tokens, the first of which comes from prefill.

    `beside` is the footprint of one sequence from an earlier measurement: on GPUs that much memory is allocated for
    each other sequence of the batch during prefill, as if the prompts were prefilled one after the other.
    """
    collect(model)
    method, budget = setting.method, setting.budget_at(len(ids), num_layers(model, len(ids)), new_tokens)
    forget(method)
    with allocated({} if beside is None else beside.on_gpus, batch - 1):
        compressed = compress(model, ids, method, budget)
        compressed.live = Beside()  # one setting alone: nothing holds the uncompressed prompt
        first = first_decode(model, compressed) if method.compress_at == "first_decode" else None
    tokens, alone_peak = ((), 0) if first is None else ((first.token,), first.decode_bytes.peak)
    kept_bytes = compressed.stored_bytes(compressed.caches)
    if first is not None:
        # a method's own layer may hold the layer for decoding as `inner`
        compressed.caches = [getattr(layer, "inner", layer) for layer in compressed.caches]
    layers = tuple(cache.kept for cache in compressed.caches if cache.kept is not None)
    held = stored(compressed.caches)
    prefilled, on_gpus = storage_bytes(held), by_gpu(held)
    del held
    layer_bytes = [cache.nbytes for cache in compressed.caches]
    given_bytes = [before_joining(cache) for cache in compressed.caches]
    copies = list(compressed.copies(batch))
    cache = batched(copies)
    wait_for(model)  # decoding does not take the time of the copies
    outputs = decode(
        model,
        cache,
        compressed.logits.expand(batch, -1),
        new_tokens - len(tokens),
        stop_tokens=frozenset(),
        recording=recording_of(engine, model),
    )
    wait_for(model)
    decode_bytes = outputs[0].decode_bytes
    batch_peak = decode_bytes.peak
    if first is not None:
        decode_bytes.follow(first.decode_bytes)
    return Measurement(
        compressed.prefill_seconds,
        compressed.compress_seconds,
        allocation_seconds(method, budget, len(ids), len(layers)),
        outputs[0].seconds,
        outputs[0].steps,
        tuple((*tokens, *output.tokens) for output in outputs),
        layers,
        Footprint(
            compressed.full_bytes,
            prefilled,
            kept_bytes,
            storage_bytes(stored(cache.layers)) // batch,
            max(compressed.peak_bytes, alone_peak, prefilled),
            on_gpus,
            compressed.state_bytes,
            compressed.window_bytes,
            batch_peak,
            most_joining(layer_bytes, given_bytes, [storage_bytes(layer.tensors()) // batch for layer in cache.layers]),
        ),
        "stream" if method.streams else "shared",
        decode_figures(compressed, copies[0], decode_bytes, len(ids)),
        outputs[0].engine,
        sum(layer.stacked for layer in cache.attending),
        max(filter(None, [compressed.device_peak, device_peak(model)]), default=None),
    )


def attempt(
    model: PreTrainedModel,
    ids: Tensor,
    setting: Setting,
    batch: int,
    new_tokens: int,
    beside: Footprint | None,
    engine: str,
) -> Measurement | None:
    """`measure`, or None where a GPU runs out of memory."""
    try:
        return measure(model, ids, setting, batch, new_tokens, beside, engine)
    except torch.OutOfMemoryError:
        return None


def compress(model: PreTrainedModel, ids: Tensor, method: Method, budget: int | float) -> Compressed:
    """A prompt under one method: a layer at a time where the method can be streamed."""
    plan = method.plan(len(ids), num_layers(model, len(ids)), budget)
    if method.streams:
        return StreamedPass(model, ids, plan).compress(method, budget)
    return SharedPass(model, ids, plan, method.needs).compress(method, budget)


class FirstPass(NamedTuple):
    """The pass over the first decoded token."""

    token: int
    decode_bytes: DecodeBytes


def first_decode(model: PreTrainedModel, compressed: Compressed) -> FirstPass:
    """Decode the token at which the caches compress the prompt, before they are copied for a batch.

    The pass's time counts as compression, its bytes as decoding.
    """
    started = time.perf_counter()
    token, cache = compressed.logits.argmax(), batched([compressed.caches])
    compressed.logits = read(model, cache, token[None])[0]
    wait_for(model)
    compressed.compress_seconds += time.perf_counter() - started
    return FirstPass(int(token), cache.sequences[0])


def before_joining(cache: StoredLayer) -> int:
    """Bytes of a cache and of what it gives to a batch, each storage once; 0 if a batch does not join it."""
    given = cache.for_batch() if isinstance(cache, LayerCache) else cache
    joins = isinstance(given, RowsLayer) and given.joins(given)
    return storage_bytes([*cache.tensors(), *given.tensors()]) if joins else 0


def most_joining(before: Sequence[int], given: Sequence[int], after: Sequence[int]) -> int:
    """The most bytes of a sequence while its layers, of `before` bytes each, are joined one after the other.

    A joined layer is made beside what it is made of. given: see `before_joining`; after: a layer's bytes with room.
    """
    held, most = sum(before), 0
    for old, made_of, new in zip(before, given, after, strict=True):
        most = max(most, held - old + made_of + new if made_of else 0)
        held += new - old
    return most


def allocation_seconds(method: Method, budget: int | float, n: int, num_layers: int) -> float | None:
    """The time of the rule alone that allocates tokens to layers, a part of the time to compress; None: no rule."""
    if not isinstance(method, Eviction) or not method.layerwise or budget >= n:
        return None
    started = time.perf_counter()
    tokens = as_given(budget)
    method.allocation.tokens(tokens, n, method.scoring.window_of(tokens), num_layers)
    return time.perf_counter() - started


def collect(model: PreTrainedModel) -> None:
    """Free the memory of earlier measurements, in the allocator too."""
    gc.collect()
    if gpus(model):
        torch.cuda.empty_cache()


def by_gpu(tensors: Sequence[Tensor]) -> dict[torch.device, int]:
    """Bytes of the storages of tensors on each GPU."""
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    return {device: storage_bytes(t for t in tensors if t.device == device) for device in devices}


@contextmanager
def allocated(bytes_on: Mapping[torch.device, int], times: int) -> Iterator[None]:
    """Hold memory in the place of `times` other sequences."""
    ballast = [torch.empty(times * n, dtype=torch.uint8, device=device) for device, n in bytes_on.items() if times]
    try:
        yield
    finally:
        del ballast
