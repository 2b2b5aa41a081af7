"""The second pass over a context: the model reads it again after its own cache (KVzip)."""

import copy
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import StoredLayer, storage_bytes
from kvbench.cache.held import Held
from kvbench.cache.linear_state import LinearState
from kvbench.cache.sliding_window import WindowLayer
from kvbench.errors import UserError
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.cache_argument import as_argument
from kvbench.models.latents import Latents
from kvbench.models.layer_kinds import check_continues
from kvbench.models.positions import positions_after
from kvbench.models.rope_growth import growth_of
from kvbench.ops.attention import dense_attention
from kvbench.ops.log_sums import attention_in_parts
from kvbench.ops.softmax import Scaling, plain
from kvbench.prefill.full import held_by, prefill
from kvbench.prefill.reconstruction import (
    ContextFrame,
    ContextScores,
    Reconstruction,
    Weighing,
    largest_attention,
    strongest_attention,
)
from kvbench.prefill.state import LayerState, Needs, PrefillState, interleaved


class RereadLayer(AttendingLayer):
    """One layer's cache of the prompt up to the context's end, while a chunk of the context is read again after it.

    The new tokens' keys and values are dropped after their attention is computed. The attention to the chunk's keys is
    written into `scores` [num_key_value_heads, n].
    """

    def __init__(
        self,
        layer: LayerState,
        end: int,
        prefix: int,
        chunk: slice,
        scores: Tensor,
        group: Literal["max", "mean"],
        readers: int,
        weighing: Weighing | None,
    ):
        super().__init__()
        self.layer, self.end, self.prefix, self.chunk, self.scores = layer, end, prefix, chunk, scores
        self.group, self.seen = group, end
        self.readers, self.weighing = readers, weighing
        self.latent = layer.latents is not None
        self.held = Held()  # of all layers while the chunk is read

    def keep_latents(self, latents: Latents) -> None:
        """Nothing is kept of the tokens that are read again."""

    def append(self, keys: Tensor, values: Tensor) -> None:
        past = self.layer.keys[None, :, : self.end], self.layer.values[None, :, : self.end]
        self.keys, self.values = (
            self.held.replace(None, torch.cat([*self.in_parts(x), new], dim=2))
            for x, new in zip(past, (keys, values), strict=True)
        )

    def in_parts(self, past: Tensor) -> list[Tensor]:
        """The prefix and the chunk, which are scored, then the rest of the context."""
        start, stop = self.chunk.start, self.chunk.stop
        return [past[:, :, : self.prefix], past[:, :, start:stop], past[:, :, self.prefix : start], past[:, :, stop:]]

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention over all keys; scores come only from the prefix, the chunk and the tokens that are read again."""
        scored = self.prefix + self.chunk.stop - self.chunk.start
        places = [slice(scored), slice(scored, self.end), slice(self.end, None)]
        parts = [
            (self.keys[:, :, place], self.values[:, :, place]) for place in places if place != slice(self.end, self.end)
        ]
        keys, in_parts = self.keys[0], attention_in_parts(query, parts, scaling)
        factors = None if self.weighing is None else self.weighing(self.values[0, :, self.prefix : scored])
        if in_parts is not None:
            out, (of_scored, *_, of_new) = in_parts
            log_sums = torch.logaddexp(of_scored, of_new)[0]
            self.scores[:, self.chunk] = strongest_attention(
                query[0], keys[:, self.prefix : scored], plain(scaling), log_sums, self.group, factors
            )
        else:
            near = torch.cat([keys[:, :scored], keys[:, self.end :]], dim=1)
            self.scores[:, self.chunk] = largest_attention(
                query[0], near, scaling, self.prefix, scored, group=self.group, factors=factors
            )
            out = dense_attention(query, self.keys, self.values, scaling)
        self._drop_unless_unread()
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        self.was_read()
        out = dense_attention(query, self.keys, self.values, scaling)
        self._drop_unless_unread()
        return out

    def _drop_unless_unread(self) -> None:
        if not self.unread:
            self.held.drop([self.keys, self.values])
            self.keys = self.values = None


@torch.inference_mode()
def reconstruct(
    model: PreTrainedModel, input_ids: Tensor, state: PrefillState, how: Reconstruction, frame: ContextFrame
) -> int:
    """Read the context in input_ids [n] again and add its scores to `state`, the result of a full pass over them.

    Every layer gets `reconstruction[how]`. Returns the peak bytes of keys, values and states: `state`, the layers that
    read again, and the layers that no method compresses, as they were at the context's end.

    Raises UserError for a model whose rotation depends on the length of the text, which grows here.
    """
    if growth := growth_of(model):
        raise UserError(
            f"a second pass over the context lengthens the text, and this model's rotation depends on {growth}"
        )
    check_continues(model.config, "the context is read a second time")
    n = len(input_ids)
    start, end = frame.span(n)
    prefix = min(start or how.sinks, end)
    fixed, making = fixed_layers_at(model, input_ids, state, end)
    beside = bytes_of([*state.layers, *state.fixed_layers.values(), *fixed.values()])
    peak = max(making, beside)
    places = [at for at in range(len(state.readers)) if at not in fixed]
    readers = [state.readers[at] for at in places]
    scores = [torch.full((x.num_key_value_heads, n), float("inf"), device=x.keys.device) for x in state.layers]
    with how.weighing(model, places) as weighings:
        for start in range(prefix, end, how.chunk):
            chunk = slice(start, min(start + how.chunk, end))
            ids = torch.cat([input_ids.new_tensor(request_ids(how, frame, input_ids, start, prefix)), input_ids[chunk]])
            layers = [
                RereadLayer(layer, end, prefix, chunk, row, how.group, count, weighing)
                for layer, row, count, weighing in zip(state.layers, scores, readers, weighings, strict=True)
            ]
            peak = max(peak, beside + read_again(model, ids, end, layers, fixed))
    for layer, row in zip(state.layers, scores, strict=True):
        layer.reconstruction[how] = ContextScores(row, n - (end - prefix))
    return peak


def read_again(
    model: PreTrainedModel, ids: Tensor, end: int, layers: Sequence[RereadLayer], fixed: Mapping[int, StoredLayer]
) -> int:
    """Read ids [q] after the first `end` tokens, with copies of the layers in `fixed`.

    Returns the most bytes that `layers` and the copies held at once.
    """
    copies = {
        at: layer.cut(end) if isinstance(layer, WindowLayer) else copy.deepcopy(layer) for at, layer in fixed.items()
    }
    held = held_by(copies.values())
    for layer in layers:
        layer.held = held
    ids = ids[None].to(model.device)
    model(
        input_ids=ids,
        **as_argument(model, Cache(layers=interleaved(layers, copies))),
        position_ids=positions_after(end, ids),
        use_cache=True,
        logits_to_keep=1,
    )
    return held.most


class FixedLayers(NamedTuple):
    layers: dict[int, StoredLayer]  # by their number in the model
    peak: int  # most bytes of keys, values and states while they were made, 0 if nothing was


def fixed_layers_at(model: PreTrainedModel, input_ids: Tensor, state: PrefillState, end: int) -> FixedLayers:
    """The layers that no method compresses, with states after the first `end` of the input_ids [n].

    A sliding window can be cut there. A state of fixed size cannot go back: if the prompt goes on after the context,
    the model reads the context once more to compute it.
    """
    fixed = state.fixed_layers
    if end == len(input_ids) or not any(isinstance(layer, LinearState) for layer in fixed.values()):
        return FixedLayers(fixed, 0)
    before = bytes_of([*state.layers, *fixed.values()])
    context = prefill(model, input_ids[:end], Needs(), release=lambda layer: None)
    layers = {at: context.fixed_layers[at] if isinstance(layer, LinearState) else layer for at, layer in fixed.items()}
    return FixedLayers(layers, before + context.peak_bytes)


def bytes_of(layers: Sequence[LayerState | StoredLayer]) -> int:
    """Bytes of the storages of all layers, each once: latents, too, beside the keys and values that they became."""
    return storage_bytes(tensor for layer in layers for tensor in layer.tensors())


def request_ids(how: Reconstruction, frame: ContextFrame, input_ids: Tensor, start: int, prefix: int) -> list[int]:
    """Token ids between the context and the chunk read again from `start` on: a request, its lead, the suffix."""
    if how.requests is None:
        return []
    first = start == prefix
    lead = [] if first else input_ids[start - min(how.lead, how.chunk) : start].tolist()
    return [*frame.request(how.requests[not first]), *lead, *frame.suffix]
