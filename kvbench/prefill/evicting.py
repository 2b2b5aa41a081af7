"""A prefill that drops tokens of every layer after each chunk of the prompt, so that no layer ever holds it whole."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.held import Held
from kvbench.errors import UserError
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.layer_kinds import check_continues
from kvbench.models.rope_growth import growth_of
from kvbench.ops.attention import dense_attention
from kvbench.ops.column_sums import column_sums
from kvbench.ops.rope import Rope
from kvbench.ops.softmax import Scaling
from kvbench.prefill.full import PromptLayers
from kvbench.prefill.plan import PrefillPlan
from kvbench.prefill.state import LayerState, Needs, PrefillState, Release

# keep(state): the tokens of a layer to keep, [1 or num_key_value_heads, k], ascending; None: all. `state` looks as if
# the prompt had only these tokens.
Keep = Callable[[LayerState], Tensor | None]


@dataclass(frozen=True)
class EvictingPrefill(PrefillPlan):
    """The model's forward pass, `chunk` tokens at a time; after each chunk `keep` chooses the tokens of every layer.

    A chunk attends to the tokens that earlier chunks left, and to itself. Only Needs(window, column_sums) can be met:
    the last queries, and the attention of all queries so far to the tokens that are left.

    rule   describes `keep`: settings with equal rules share a pass.
    """

    chunk: int
    rule: str
    keep: Keep = field(compare=False)

    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        """The states hold the tokens that are left; `release` is called after the whole prompt was read."""
        return evicting_prefill(model, input_ids, self, needs, release)


@dataclass
class Tokens:
    """The tokens of a layer that are left of the prompt so far.

    Keys and values are replaced one after the other, so that only one of them exists twice at a time.
    """

    keys: Tensor
    values: Tensor  # both [1, num_key_value_heads, left, head_dim]
    positions: Tensor  # [num_key_value_heads, left] in the prompt

    def append(self, new: "Tokens", held: Held) -> None:
        self.keys = held.replace(self.keys, torch.cat([self.keys, new.keys], dim=2))
        self.values = held.replace(self.values, torch.cat([self.values, new.values], dim=2))
        self.positions = torch.cat([self.positions, new.positions], dim=1)

    def keep(self, kept: Tensor, held: Held) -> None:
        """Drop all tokens except the tokens at kept [num_key_value_heads, k]."""
        self.keys = held.replace(self.keys, taken(self.keys, kept))
        self.values = held.replace(self.values, taken(self.values, kept))
        self.positions = self.positions.gather(1, kept)


def taken(x: Tensor, kept: Tensor) -> Tensor:
    """The tokens at kept [num_key_value_heads, k] of x [1, num_key_value_heads, n, head_dim]."""
    return x.gather(2, kept[None, ..., None].expand(-1, -1, -1, x.shape[3]))


class EvictingLayer(AttendingLayer):
    """One layer's tokens that are left of the prompt so far, with their observations."""

    def __init__(
        self,
        keep: Keep,
        needs: Needs,
        index: int = 0,
        num_layers: int = 1,
        window: int | None = None,
    ):
        """See CaptureLayer for the last three."""
        super().__init__()
        self.keep, self.needs = keep, needs
        self.held = Held()  # of all layers of the pass
        self.rope: Rope | None = None  # of the layer
        self.index, self.num_layers, self.window = index, num_layers, window
        self.left: Tokens | None = None
        self.queries: Tensor | None = None  # [num_attention_heads, window, head_dim], the last ones
        self.sums: Tensor | None = None  # [num_attention_heads, left]
        self.state: LayerState | None = None

    @property
    def tokens(self) -> Tokens:
        """The tokens that are left, after the first `append`."""
        assert self.left is not None, "`append` comes first"
        return self.left

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.state = None  # it holds the tensors that are replaced
        _, heads, count, _ = keys.shape
        positions = torch.arange(self.seen, self.seen + count, device=keys.device).expand(heads, -1)
        if self.left is None:
            keys, values = (self.held.replace(None, x.contiguous()) for x in (keys, values))
            self.left = Tokens(keys, values, positions)
        else:
            self.left.append(Tokens(keys, values, positions), self.held)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = dense_attention(query, self.tokens.keys, self.tokens.values, scaling)
        self.observe(query, scaling)
        self.state = self.state_of(scaling, query.shape[1])
        if not self.unread:
            self.reduce()
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = dense_attention(query, self.tokens.keys, self.tokens.values, scaling)
        if self.was_read():
            self.reduce()
        return out

    def reduce(self) -> None:
        """Drop the tokens that `keep` does not keep; every layer has attended to them by now."""
        state, self.state = self.state, None
        assert state is not None, "readers come after `attend`"
        scaling, num_attention_heads = state.scaling, state.num_attention_heads
        kept = self.keep(state)
        del state  # it holds the tensors that are replaced
        if kept is not None:
            self.drop(kept)
        self.state = self.state_of(scaling, num_attention_heads)
        self.state.positions = self.tokens.positions

    def hand_over(self, release: Release) -> None:
        """Pass the layer's state to `release` and hold nothing afterwards."""
        state, self.state, self.left = self.state, None, None
        assert state is not None, "`attend` comes first"
        self.held.hand_over(state.tensors(), release(state))

    def observe(self, query: Tensor, scaling: Scaling) -> None:
        """Make the needed observations of query [1, num_attention_heads, q, head_dim]."""
        if self.needs.window:
            last = query[0] if self.queries is None else torch.cat([self.queries, query[0]], dim=1)
            self.queries = last[:, -self.needs.window :].clone()
        if self.needs.column_sums:
            keys = self.tokens.keys
            sums = torch.zeros(query.shape[1], keys.shape[2], device=query.device)
            if self.sums is not None:
                sums[:, : self.sums.shape[1]] = self.sums
            start = keys.shape[2] - query.shape[2]
            self.sums = column_sums(query[0], keys[0], scaling, start, sums=sums).sums

    def state_of(self, scaling: Scaling, num_attention_heads: int) -> LayerState:
        return LayerState(
            self.tokens.keys[0],
            self.tokens.values[0],
            scaling,
            num_attention_heads,
            self.rope,
            queries=self.queries,
            column_sums=self.sums,
            prompt=self.seen,
            index=self.index,
            num_layers=self.num_layers,
            window=self.window,
        )

    def drop(self, kept: Tensor) -> None:
        """Drop all tokens except the tokens at kept [1 or num_key_value_heads, k]."""
        kept = kept.expand(len(self.tokens.positions), -1)
        self.tokens.keep(kept, self.held)
        if self.sums is not None:
            self.sums = self.sums.gather(1, kept.repeat_interleave(len(self.sums) // len(kept), dim=0))


@torch.inference_mode()
def evicting_prefill(
    model: PreTrainedModel, input_ids: Tensor, plan: EvictingPrefill, needs: Needs, release: Release | None
) -> PrefillState:
    """Run `model` over input_ids [n] in chunks; after each chunk every layer drops tokens.

    Layers with a sliding window or a state of fixed size keep it. `peak_bytes` of the result counts the keys and values
    of all layers, and the copy that replaces one of them. `release` gets the layers after the whole pass.
    Raises UserError for a model whose rotation depends on the length of the text, which a chunk does not know.
    """
    if growth := growth_of(model):
        raise UserError(
            f"tokens are dropped chunk by chunk, but this model's rotation depends on {growth}, which a chunk "
            "does not know"
        )
    check_continues(model.config, "tokens are dropped chunk by chunk")
    layers = PromptLayers(model, len(input_ids), needs, partial(EvictingLayer, plan.keep, needs))
    for ids in input_ids[None].to(model.device).split(plan.chunk, dim=1):
        logits = layers.read(model, ids)
    state = layers.state(logits, [])
    if release is not None:
        state.layers = []
        for layer in layers.captures:
            layer.hand_over(release)
        state.peak_bytes = layers.held.most
    return state
