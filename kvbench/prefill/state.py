"""The state after a forward pass over a prompt: keys, values and observations of each layer."""

import copy
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import Tensor

from kvbench.cache.base import LayerCache, StoredLayer
from kvbench.cache.held import Taken
from kvbench.cache.kept_positions import Marks
from kvbench.cache.latents import LatentCache
from kvbench.cache.sliding_window import WindowLayer, fixed_bytes
from kvbench.errors import UserError
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.latents import LATENTS, Latents
from kvbench.ops.column_sums import column_sums
from kvbench.ops.rope import Rope
from kvbench.ops.softmax import Scaling
from kvbench.ops.window_moments import WindowMoments, window_moments
from kvbench.prefill.block_sums import Blocks
from kvbench.prefill.query_moments import QueryMoments
from kvbench.prefill.reconstruction import ContextScores, Reconstruction, Span
from kvbench.utils.own_code import caller_of

Cached = TypeVar("Cached")
Observed = TypeVar("Observed", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Needs:
    """The observations that a method reads from the prefill. `a | b` has the observations of both."""

    window: int = 0  # queries of the last `window` positions
    column_sums: bool = False  # per key, the attention of all queries, and the queries' log-sum-exp
    hidden_similarity: bool = False  # cosine of the hidden states before and after attention
    lookahead_sums: frozenset[int] = frozenset()  # for each w: column sums in which only the last w queries are causal
    query_moments: frozenset[int] = frozenset()  # for each s: moments of the queries before RoPE, without the first s
    value_output_norm: bool = False  # L1 norms of the values after the output projection
    reconstructions: frozenset[Reconstruction] = frozenset()  # second passes over the context, after the first pass
    context: bool = False  # the place of the context in the prompt
    block_sums: frozenset[Blocks] = frozenset()  # attention inside blocks without a mask

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            max(self.window, other.window),
            self.column_sums or other.column_sums,
            self.hidden_similarity or other.hidden_similarity,
            self.lookahead_sums | other.lookahead_sums,
            self.query_moments | other.query_moments,
            self.value_output_norm or other.value_output_norm,
            self.reconstructions | other.reconstructions,
            self.context or other.context,
            self.block_sums | other.block_sums,
        )


@dataclass
class LayerState:
    """One layer after prefill. It is shared by all settings of a sample and must not be modified."""

    keys: Tensor  # [num_key_value_heads, n, head_dim], after RoPE
    values: Tensor  # [num_key_value_heads, n, head_dim]
    scaling: Scaling
    num_attention_heads: int
    rope: Rope | None = None
    queries: Tensor | None = None  # [num_attention_heads, window, head_dim], after RoPE, the last ones
    column_sums: Tensor | None = None  # [num_attention_heads, n] float32
    lse: Tensor | None = None  # [num_attention_heads, n] float32
    hidden_similarity: float | None = None  # mean cosine of the hidden states before and after attention
    # only after a pass that drops tokens; then n counts the tokens that entered this layer, or were left in it:
    prompt: int | None = None  # tokens of the whole prompt
    positions: Tensor | None = None  # their original positions, ascending, [n], or [num_key_value_heads, n]
    lookahead_sums: dict[int, Tensor] = field(default_factory=dict)  # by w: [num_attention_heads, n] float32
    query_moments: dict[int, QueryMoments] = field(default_factory=dict)  # by s
    block_sums: dict[Blocks, Tensor] = field(default_factory=dict)  # [num_attention_heads, n - skip - leave] float32
    value_output_norm: Tensor | None = None  # [num_attention_heads, n] float32
    reconstruction: dict[Reconstruction, ContextScores] = field(default_factory=dict)  # by second pass
    context: Span | None = None  # where it begins and ends in the prompt, without the chat template
    marks: Marks = ()  # positions in the prompt between which kept tokens are counted, if it has marked spans
    index: int = 0  # of the layer, from the lowest, among compressed layers
    num_layers: int = 1  # number of compressed layers: layers that keep keys and values of all tokens
    window: int | None = None  # the layer's sliding window, which the prompt does not fill
    scores: Tensor | None = None  # [heads, n - window] of one method, if a cascade has dropped tokens of the layer
    latents: Latents | None = None  # stored instead of keys and values, [1, 1, n, …] each
    headless: bool = False  # whether keys and values are rotated keys and latents, which all heads share
    _cached: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def n(self) -> int:
        """Tokens that the layer has: of the prompt, or those that a pass which drops tokens has left."""
        return int(self.keys.shape[1])

    @property
    def seen(self) -> int:
        """Tokens of the whole prompt, in this layer or not; also the position of the first decoded token."""
        return self.n if self.prompt is None else self.prompt

    @property
    def num_key_value_heads(self) -> int:
        """KV heads, each of which a group of query heads reads."""
        return int(self.keys.shape[0])

    @property
    def stored(self) -> "LayerState":
        """The layer as caches store it: itself, or latents as the values of one head and rotated keys as its keys.

        Scores are computed from the keys and values of heads; storages take this.
        """
        if self.latents is None:
            return self
        latent, rotated = (x[0] for x in self.latents)
        return replace(self, keys=rotated, values=latent, latents=None, headless=True)

    def requested(self, needs: Needs) -> "LayerState":
        """The layer with the observations in `needs` alone, whatever else the pass observed.

        So a method is given the same beside others as alone. Results of `once` are shared with this layer.
        """
        layer = copy.copy(self)
        if self.queries is not None:
            layer.queries = self.queries[:, -needs.window :] if needs.window else None
        if not needs.column_sums:
            layer.column_sums = layer.lse = None
        if not needs.hidden_similarity:
            layer.hidden_similarity = None
        if not needs.value_output_norm:
            layer.value_output_norm = None
        if not needs.context:
            layer.context = None
        layer.lookahead_sums = listed(self.lookahead_sums, needs.lookahead_sums)
        layer.query_moments = listed(self.query_moments, needs.query_moments)
        layer.block_sums = listed(self.block_sums, needs.block_sums)
        layer.reconstruction = listed(self.reconstruction, needs.reconstructions)
        return layer

    def tensors(self) -> list[Tensor]:
        """The tensors of the layer's tokens: latents beside the keys and values to which they were expanded."""
        return [self.keys, self.values, *(self.latents or ())]

    @property
    def nbytes(self) -> int:
        """Bytes of the uncompressed cache of this layer and all the prompt: the denominator of r_bytes."""
        held = self.seen if self.window is None else min(self.seen, self.window - 1)
        stored = (self.keys, self.values) if self.latents is None else self.latents
        return sum(x.nbytes for x in stored) // self.n * held

    def mean_share(self, keys: float, values: float) -> float:
        """The share of keys and values together that is stored, from the shares of each; wider rows weigh more."""
        widths = self.keys.shape[2], self.values.shape[2]
        if widths[0] == widths[1]:
            return (keys + values) / 2
        return (widths[0] * keys + widths[1] * values) / sum(widths)

    def once(self, name: Hashable, make: Callable[[], Cached]) -> Cached:
        """The result of `make`, computed for the first setting that asks for `name` and kept for the others."""
        if name not in self._cached:
            self._cached[name] = make()
        return self._cached[name]

    def last_queries(self, window: int) -> Tensor:
        """The queries of the last `window` positions, [num_attention_heads, window, head_dim].

        Of a shorter prompt, all. Raises UserError for a storage that would multiply them with latents, and for a caller
        that has not requested them, or fewer.
        """
        if self.headless:
            raise UserError(
                f"{LATENTS}: a storage that weighs channels or values by the queries of heads cannot hold them"
            )
        if self.queries is None:
            raise UserError(f"{caller_of(__file__)} reads queries: set `needs = Needs(window={window})`")
        if (observed := self.queries.shape[1]) < min(window, self.n):
            raise UserError(
                f"{caller_of(__file__)} reads {window} queries, and {observed} were observed: set "
                f"`needs = Needs(window={window})`"
            )
        return self.queries[:, -window:].contiguous()

    def window_votes(self, window: int) -> Tensor:
        """Attention summed over the last `window` queries, float32 [num_attention_heads, n].

        Computed from exactly these queries, even if the run observed more; once for all settings, each of which gets
        a copy: a scorer that writes its votes, as `Scoring.keep_sinks` does, changes no other setting's.
        """
        queries = self.last_queries(window)  # not once: a setting that has not requested them is refused
        first = self.n - queries.shape[1]
        votes = self.once(("window votes", window), lambda: column_sums(queries, self.keys, self.scaling, first).sums)
        return votes.clone()

    def window_moments(self, window: int) -> WindowMoments:
        """Mean, variance and entropy of the attention of the last `window` queries; once for all settings, each of
        which gets copies."""
        queries = self.last_queries(window)
        moments = self.once(("window moments", window), lambda: window_moments(queries, self.keys, self.scaling))
        return WindowMoments(*(moment.clone() for moment in moments))


def listed(made: Mapping[Observed, Value], names: Container[Observed]) -> dict[Observed, Value]:
    """The entries of `made` under these names."""
    return {name: value for name, value in made.items() if name in names}


@dataclass
class PrefillState:
    """The state after one pass over a prompt of n tokens. Methods read `layers`, and compress nothing else."""

    layers: list[LayerState]  # the compressed layers; empty if they were released during the pass
    logits: Tensor  # [vocab_size] of the last prompt position, which give the first new token
    peak_bytes: int = 0  # most bytes that all layers of the pass, and the receiver of released ones, held at once
    # the layers that no method compresses by their number in the model: sliding windows, states of fixed size, layers
    # that store nothing
    fixed_layers: dict[int, StoredLayer] = field(default_factory=dict)
    readers: Sequence[int] = ()  # of each layer of the model: how many later ones attend to its keys and values
    latent: bool = False  # whether the model stores latents in compressed layers

    @property
    def n(self) -> int:
        """Tokens of the prompt, or those that a pass which drops tokens has left in the first layer."""
        return self.layers[0].n

    @property
    def nbytes(self) -> int:
        """Bytes of FullKV in `layers`: the model's GQA cache at this length and dtype."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def fixed_bytes(self) -> int:
        """Bytes of `fixed_layers`, under FullKV and every method."""
        return fixed_bytes(self.fixed_layers.values())

    def requested(self, needs: Needs) -> "PrefillState":
        """The state with the observations in `needs` alone; see `LayerState.requested`."""
        return replace(self, layers=[layer.requested(needs) for layer in self.layers])

    def settle(self) -> None:
        """Drop the part of `fixed_layers` that only a second pass over the context needs, one layer after the other."""
        for place, layer in self.fixed_layers.items():
            self.fixed_layers[place] = settled(layer)

    def whole(self, caches: Sequence[LayerCache]) -> list[StoredLayer]:
        """The caches of all layers: a method's caches of `layers`, and copies of `fixed_layers`."""
        return self.placed(caches, copy.deepcopy(self.fixed_layers))

    def placed(self, caches: Sequence[LayerCache], fixed_layers: Mapping[int, StoredLayer]) -> list[StoredLayer]:
        """The caches of all layers, each with the number of its readers.

        Raises UserError if the model stores latents and a cache does not.
        """
        attending = [LatentCache(cache) for cache in caches] if self.latent else caches
        placed: list[StoredLayer] = interleaved(attending, fixed_layers)
        for cache, readers in zip(placed, self.readers, strict=False):
            if isinstance(cache, AttendingLayer):
                cache.readers = readers
        return placed


def settled(layer: StoredLayer) -> StoredLayer:
    """A layer without the tokens before its sliding window."""
    return layer.cut(layer.seen) if isinstance(layer, WindowLayer) and layer.whole else layer


def interleaved(layers: Sequence[Any], fixed_layers: Mapping[int, Any]) -> list[Any]:
    """`layers` and `fixed_layers`, which are known by their number in the model, in the order of the model."""
    remaining = iter(layers)
    places = range(len(layers) + len(fixed_layers))
    return [fixed_layers[place] if place in fixed_layers else next(remaining) for place in places]


# Receives the state of each layer as soon as its attention is computed. The state is freed unless it keeps it; then it
# returns the bytes that it holds, if the peak of the pass is to count them.
Release = Callable[[LayerState], Taken | None]
