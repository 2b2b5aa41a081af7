"""One forward pass over a prompt, and what it leaves for every method and ratio of a run."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from kvbench import attention
from kvbench.cache.base import AttendingLayer
from kvbench.hidden import hidden_similarities
from kvbench.rope import Rope


@dataclass(frozen=True)
class Needs:
    """What a method reads from the prefill. `a | b` is what both together need."""

    window: int = 0  # queries of the last `window` positions
    column_sums: bool = False  # per key, the attention of all queries; brings the log-sum-exp along
    hidden_similarity: bool = False  # of the hidden states before and after attention

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            max(self.window, other.window),
            self.column_sums or other.column_sums,
            self.hidden_similarity or other.hidden_similarity,
        )


@dataclass
class LayerState:
    """One layer after prefill. Shared by all settings of a sample: read it, never write it."""

    keys: Tensor  # [num_key_value_heads, n, head_dim], after RoPE
    values: Tensor  # [num_key_value_heads, n, head_dim]
    scaling: float
    num_attention_heads: int
    rope: Rope | None = None
    queries: Tensor | None = None  # [num_attention_heads, window, head_dim], after RoPE, the last ones
    column_sums: Tensor | None = None  # [num_attention_heads, n] float32
    lse: Tensor | None = None  # [num_attention_heads, n] float32
    hidden_similarity: float | None = None  # mean cosine of the hidden states before and after attention
    # only after a pruned pass, where n counts the tokens that reached this layer:
    prompt: int | None = None  # tokens of the whole prompt
    positions: Tensor | None = None  # [n] the original positions of those that reached it, ascending
    _votes: dict[int, Tensor] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        return self.keys.shape[1]

    @property
    def seen(self) -> int:
        """Tokens of the prompt, whether or not they reached this layer: decoding goes on at this position."""
        return self.n if self.prompt is None else self.prompt

    @property
    def num_key_value_heads(self) -> int:
        return self.keys.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the uncompressed GQA cache of this layer and all the prompt: the denominator of r_bytes."""
        return (self.keys.nbytes + self.values.nbytes) // self.n * self.seen

    def window_votes(self, window: int) -> Tensor:
        """Attention summed over the last `window` queries, float32 [num_attention_heads, n].

        Computed from exactly these queries, whatever else the run asked for, and kept: SnapKV at five
        ratios pays once.
        """
        if window not in self._votes:
            queries = self.queries[:, -window:].contiguous()
            self._votes[window] = attention.window_attention(queries, self.keys, self.scaling).sum(dim=1)
        return self._votes[window]


@dataclass
class PrefillState:
    """What one pass over a prompt of n tokens leaves behind."""

    layers: list[LayerState]  # empty where each was released as soon as it was done
    logits: Tensor  # [vocab_size], of the last prompt position: the first new token comes from here
    peak_bytes: int = 0  # most that the pass held at once, where it compressed by itself

    @property
    def n(self) -> int:
        return self.layers[0].n

    @property
    def nbytes(self) -> int:
        """Bytes of FullKV: the model's own GQA cache at this length and dtype."""
        return sum(layer.nbytes for layer in self.layers)


# Takes the state of a layer as soon as its attention is done; what it does not keep is freed.
Release = Callable[[LayerState], None]


class CaptureLayer(AttendingLayer):
    """A cache layer that keeps the prompt's K and V and, while attention runs, makes the observations.

    With `release` it hands its state on instead, and holds nothing from then on.
    """

    def __init__(self, needs: Needs, rope: Rope | None, release: Release | None = None):
        super().__init__()
        self.needs, self.rope, self.release = needs, rope, release
        self.state: LayerState | None = None

    def append(self, keys: Tensor, values: Tensor) -> None:
        # values arrive as a view of the projection; a copy owns exactly its own bytes
        self.keys, self.values = keys.contiguous(), values.contiguous()

    def observe(self, query: Tensor, scaling: float) -> LayerState:
        """The state of this layer, from query [1, num_attention_heads, n, head_dim]."""
        state = LayerState(self.keys[0], self.values[0], scaling, query.shape[1], self.rope)
        if self.needs.window:
            state.queries = query[0, :, -self.needs.window :].clone()
        if self.needs.column_sums:
            state.column_sums, state.lse = attention.column_sums(query[0], state.keys, scaling)
        return state

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        self.state = self.observe(query, scaling)
        out = attention.dense_attention(query, self.keys, self.values, scaling)
        if self.release is not None:
            self.release(self.state)
            self.keys = self.values = self.state = None
        return out


@torch.inference_mode()
def prefill(model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None) -> PrefillState:
    """Run `model` once over input_ids [n] and capture the prefill state with the observations of `needs`.

    With `release` every layer is handed to it instead, in order, and the state comes back without layers.
    """
    rope = Rope.of(model)
    layers = [CaptureLayer(needs, rope, release) for _ in range(model.config.get_text_config().num_hidden_layers)]
    with hidden_similarities(model) if needs.hidden_similarity else nullcontext([]) as similarities:
        out = model(
            input_ids=input_ids[None].to(model.device),
            past_key_values=Cache(layers=layers),
            use_cache=True,
            logits_to_keep=1,
        )
    states = [layer.state for layer in layers if layer.state is not None]
    for state, similarity in zip(states, similarities, strict=False):  # none where none was asked for
        state.hidden_similarity = similarity
    return PrefillState(states, out.logits[0, -1])
