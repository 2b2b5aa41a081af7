"""The model's own forward pass over a whole prompt, with the observations that methods read."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench.cache.base import NoCache, StoredLayer
from kvbench.cache.held import Held
from kvbench.cache.linear_state import LinearState
from kvbench.cache.sliding_window import ChunkLayer, WindowLayer
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.cache_argument import as_argument
from kvbench.models.latents import Latents
from kvbench.models.layer_kinds import LayerKind, compressed_layers, kinds_at, kinds_of
from kvbench.models.positions import positions_after
from kvbench.models.probe import ropes_of
from kvbench.models.rope_growth import forget_lengths
from kvbench.ops.attention import dense_attention
from kvbench.ops.column_sums import column_sums
from kvbench.ops.log_sums import AttentionOutput, attention_and_log_sums
from kvbench.ops.rope import Rope, fixed_rotation
from kvbench.ops.softmax import Scaling
from kvbench.prefill.block_sums import Blocks, BlockSums
from kvbench.prefill.hidden_states import hidden_similarities
from kvbench.prefill.plan import PrefillPlan
from kvbench.prefill.query_moments import QueryMoments, query_moments
from kvbench.prefill.state import LayerState, Needs, PrefillState, Release, interleaved
from kvbench.prefill.value_output_norm import output_projections, value_output_norm


class CaptureLayer(AttendingLayer):
    """A cache layer that captures the prompt's K and V and makes the observations in `needs` while attention runs.

    With `release` the state is passed to it instead, and the layer holds nothing afterwards.
    """

    def __init__(
        self,
        needs: Needs,
        release: Release | None = None,
        index: int = 0,
        num_layers: int = 1,
        window: int | None = None,
    ):
        super().__init__()
        self.needs, self.release, self.index, self.num_layers = needs, release, index, num_layers
        self.window = window
        self.held = Held()  # of all layers of the pass
        self.rope: Rope | None = None  # of the layer
        self.projection: Tensor | None = None  # of values, if the norms of projected values are needed
        self.latents: Latents | None = None  # of all tokens so far
        self.state: LayerState | None = None
        self.moments: dict[int, QueryMoments] = {}
        self.blocks: dict[Blocks, BlockSums] = {}

    def keep_latents(self, latents: Latents) -> None:
        before = self.latents
        parts = [latents] if before is None else [before, latents]
        self.latents = Latents(*(torch.cat(rows, dim=2) for rows in zip(*parts, strict=True)))
        self.held.add(self.latents)
        self.held.drop(before or ())

    def append(self, keys: Tensor, values: Tensor) -> None:
        # values are a view of the projection; a copy owns only its bytes
        self.keys, self.values = (self.held.replace(None, x.contiguous()) for x in (keys, values))

    def observe(self, query: Tensor, scaling: Scaling, lse: Tensor | None = None) -> LayerState:
        """The layer's state with its observations, from query [1, num_attention_heads, n, head_dim] and, if known, its
        log-sum-exps."""
        state = self.state_of(scaling, query.shape[1])
        if self.needs.window:
            state.queries = query[0, :, -self.needs.window :].clone()
        if self.needs.column_sums:
            state.column_sums, state.lse = column_sums(query[0], state.keys, scaling, lse=lse)
        for w in self.needs.lookahead_sums:
            first_causal = max(state.n - w, 0)
            state.lookahead_sums[w] = column_sums(query[0], state.keys, scaling, first_causal=first_causal).sums
        self.add_moments(query, 0)
        self.add_block_sums(query, 0, state.n)
        self.add_sums(state)
        return state

    def state_of(self, scaling: Scaling, num_attention_heads: int) -> LayerState:
        """The layer's state with the observations of its values, and no others."""
        state = LayerState(
            self.keys[0],
            self.values[0],
            scaling,
            num_attention_heads,
            self.rope,
            index=self.index,
            num_layers=self.num_layers,
            window=self.window,
            latents=self.latents,
        )
        if self.projection is not None:
            state.value_output_norm = value_output_norm(state.values, self.projection)
        return state

    def add_moments(self, query: Tensor, start: int) -> None:
        """Add query [1, num_attention_heads, q, head_dim] at positions start, start+1, … to the needed moments."""
        for skip in self.needs.query_moments:
            rope = fixed_rotation(self.rope, "the mean of the queries before RoPE")
            self.moments[skip] = query_moments(query[0], rope, skip, start, self.moments.get(skip))

    def add_block_sums(self, query: Tensor, start: int, n: int) -> None:
        """Add query [1, num_attention_heads, q, head_dim] of a prompt of n tokens at positions start, start+1, …"""
        for blocks in self.needs.block_sums:
            self.blocks.setdefault(blocks, BlockSums(blocks, n)).add(query[0], self.keys[0], start)

    def add_sums(self, state: LayerState) -> None:
        """Hand the moments and sums over the prompt's queries to the state, which frees them with the layer."""
        state.query_moments, self.moments = self.moments, {}
        state.block_sums = {blocks: sums.total() for blocks, sums in self.blocks.items()}
        self.blocks = {}

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        out, lse = self.attention(query, scaling)
        self.finish(self.observe(query, scaling, lse))
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = dense_attention(query, self.keys, self.values, scaling)
        if self.was_read() and self.state is not None:
            self.finish(self.state)
        return out

    def finish(self, state: LayerState) -> None:
        """Keep the layer's state, or release it after every reader has attended."""
        self.state = state
        if self.release is not None and not self.unread:
            self.held.hand_over(state.tensors(), self.release(state))
            self.keys = self.values = self.latents = self.state = None

    def attention(self, query: Tensor, scaling: Scaling) -> AttentionOutput:
        """Attention over the appended tokens and, if column sums need them and the kernel has them, the log-sum-exps
        [num_attention_heads, q]."""
        if not self.needs.column_sums:
            return AttentionOutput(dense_attention(query, self.keys, self.values, scaling), None)
        out, lse = attention_and_log_sums(query, self.keys, self.values, scaling)
        return AttentionOutput(out, None if lse is None else lse[0])


class PromptLayers:
    """The cache layers of one pass over a prompt of n tokens: capturing layers, and `fixed_layers`.

    `make(index, num_layers, window)` makes the capturing layer `index` of the `num_layers` that methods compress;
    `window` is the layer's sliding window, which the prompt does not fill.
    """

    def __init__(
        self, model: PreTrainedModel, n: int, needs: Needs, make: Callable[[int, int, int | None], AttendingLayer]
    ):
        of_any_length, self.kinds = kinds_of(model.config), kinds_at(model.config, n)
        self.needs, self.places = needs, compressed_layers(self.kinds)
        windows = [of_any_length[place].window for place in self.places]
        self.captures = [make(index, len(self.places), window) for index, window in enumerate(windows)]
        # a second pass begins at the context's end, from which a window must look back past the prompt's last tokens
        self.fixed_layers = {
            place: layer_of(kind, whole=bool(needs.reconstructions))
            for place, kind in enumerate(self.kinds)
            if not kind.compressed
        }
        self.held = held_by(self.fixed_layers.values())
        ropes = ropes_of(model)
        for layer, place in zip(self.captures, self.places, strict=True):
            kind = self.kinds[place]
            layer.readers, layer.latent, layer.rope, layer.held = kind.readers, kind.latent, ropes[place], self.held
        self.all: list[Any] = interleaved(self.captures, self.fixed_layers)
        if needs.value_output_norm:
            for layer, weight in zip(self.captures, output_projections(model, self.places), strict=True):
                layer.projection = weight

    def observing(self, model: PreTrainedModel) -> AbstractContextManager[list[float]]:
        """A list that a pass fills with the similarity of each capturing layer; it stays empty if none is needed."""
        return hidden_similarities(model, self.places) if self.needs.hidden_similarity else nullcontext([])

    def read(self, model: PreTrainedModel, ids: Tensor) -> Tensor:
        """The logits [vocab_size] after ids [1, q], which follow the tokens that these layers have read."""
        cache = Cache(layers=self.all)
        positions = positions_after(cache.get_seq_length(), ids)
        out = model(
            input_ids=ids, **as_argument(model, cache), position_ids=positions, use_cache=True, logits_to_keep=1
        )
        return out.logits[0, -1]

    def state(self, logits: Tensor, similarities: Sequence[float]) -> PrefillState:
        """The state after the whole prompt. `similarities` are of the capturing layers, or empty."""
        states = [layer.state for layer in self.captures if layer.state is not None]
        if similarities and states:  # released layers have no states
            for state, similarity in zip(states, similarities, strict=True):
                state.hidden_similarity = similarity
        for place, layer in self.fixed_layers.items():  # one after the other, so that only one of them exists twice
            self.fixed_layers[place] = self.all[place] = trimmed(layer)
        self.held.note()
        latent = any(kind.latent for kind in self.kinds)
        readers = [kind.readers for kind in self.kinds]
        return PrefillState(states, logits, self.held.most, self.fixed_layers, readers, latent)


def layer_of(kind: LayerKind, whole: bool) -> StoredLayer:
    """The cache of a layer that no method compresses; `whole`: it keeps all tokens in spite of a sliding window."""
    if kind.keeps == "state":
        return LinearState(kind.states)
    if kind.keeps == "own":
        assert kind.window is not None, "others are compressed"
        layer_class = ChunkLayer if kind.chunked else WindowLayer
        return layer_class(kind.window, whole=whole, readers=kind.readers)
    return NoCache()


def held_by(fixed_layers: Iterable[StoredLayer]) -> Held:
    """The count of a pass in which these layers take part, with what they hold: windows go on to tell it."""
    fixed = [*fixed_layers]
    held = Held(states=[layer for layer in fixed if isinstance(layer, LinearState)])
    for layer in fixed:
        if isinstance(layer, WindowLayer):
            layer.held = held
            held.add(layer.tensors())
    return held


def trimmed(layer: StoredLayer) -> StoredLayer:
    """A layer after the prompt, without the slack of a sliding window that is not kept whole."""
    if not isinstance(layer, WindowLayer) or layer.whole:
        return layer
    cut = layer.cut(layer.seen)
    if layer.held is not None:
        layer.held.add(cut.tensors())
        layer.held.drop(layer.tensors())
    return cut


@torch.inference_mode()
def prefill(model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None) -> PrefillState:
    """Run `model` once over input_ids [n] and capture the prefill state with the observations in `needs`.

    With `release` each layer's state is passed to it instead, lowest layer first, and the returned state has no layers.
    """
    forget_lengths(model)
    layers = PromptLayers(model, len(input_ids), needs, partial(CaptureLayer, needs, release))
    with layers.observing(model) as similarities:
        out = model(
            input_ids=input_ids[None].to(model.device),
            **as_argument(model, Cache(layers=layers.all)),
            use_cache=True,
            logits_to_keep=1,
        )
    return layers.state(out.logits[0, -1], similarities)


@dataclass(frozen=True)
class FullPrefill(PrefillPlan):
    """The model's own forward pass over the whole prompt: the plan of every method that does not override it."""

    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        return prefill(model, input_ids, needs, release)
