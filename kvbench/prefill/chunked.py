"""The full forward pass in chunks of the prompt: activations take the memory of a chunk, not of the prompt."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.errors import UserError
from kvbench.models.layer_kinds import check_continues
from kvbench.models.rope_growth import growth_of
from kvbench.ops.column_sums import column_sums
from kvbench.ops.softmax import Scaling
from kvbench.prefill.full import CaptureLayer, FullPrefill, PromptLayers, prefill
from kvbench.prefill.plan import PrefillPlan
from kvbench.prefill.state import LayerState, Needs, PrefillState, Release


@dataclass(frozen=True)
class ChunkedPrefill(PrefillPlan):
    """The model's own forward pass, `chunk` tokens at a time: FullPrefill's state, up to rounding."""

    chunk: int

    def run(
        self, model: PreTrainedModel, input_ids: Tensor, needs: Needs, release: Release | None = None
    ) -> PrefillState:
        if len(input_ids) <= self.chunk:
            return prefill(model, input_ids, needs, release)
        return chunked_prefill(model, input_ids, needs, self.chunk, release)


def in_chunks(plan: PrefillPlan, chunk: int | None) -> PrefillPlan:
    """`plan` in chunks of `chunk` tokens; None: unchanged. Raises UserError for a pass that cannot be divided."""
    if chunk is None:
        return plan
    if plan != FullPrefill():
        raise UserError(
            f"prefill.chunk={chunk}: a method that drops tokens while the prompt is read needs its own pass: leave out "
            "prefill.chunk or the method"
        )
    return ChunkedPrefill(chunk)


class ChunkedLayer(CaptureLayer):
    """Captures a prompt of `n` tokens that comes in chunks, with its observations."""

    def __init__(self, n: int, *place: Any):
        """`place` as for CaptureLayer."""
        super().__init__(*place)
        self.n = n
        self.stored: tuple[Tensor, Tensor] | None = None  # K and V [1, num_key_value_heads, n, head_dim]
        self.queries: list[Tensor] = []  # the last ones, see `keeps`
        self.sums: Tensor | None = None  # [num_attention_heads, n]
        self.lse: list[Tensor] = []

    @property
    def keeps(self) -> int:
        """How many of the prompt's last queries are kept: all if some attend to tokens that are not yet read."""
        return self.n if self.needs.lookahead_sums else self.needs.window

    def append(self, keys: Tensor, values: Tensor) -> None:
        start, end = self.seen, self.seen + keys.shape[2]
        if self.stored is None:
            self.stored = tuple(x.new_empty(*x.shape[:2], self.n, x.shape[3]) for x in (keys, values))
            self.held.add(self.stored)
        for store, new in zip(self.stored, (keys, values), strict=True):
            store[:, :, start:end] = new
        self.keys, self.values = (store[:, :, :end] for store in self.stored)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        start = self.seen - query.shape[2]
        if kept := max(self.seen - max(start, self.n - self.keeps), 0):
            queries = query[0, :, -kept:].clone()
            # all queries of all layers take several GB, which a GPU may lack
            self.queries.append(queries.cpu() if self.needs.lookahead_sums else queries)
        out, lse = self.attention(query, scaling)
        if self.needs.column_sums:
            if self.sums is None:
                self.sums = torch.zeros(query.shape[1], self.n, device=query.device)
            self.lse.append(column_sums(query[0], self.keys[0], scaling, start, sums=self.sums, lse=lse).lse)
        self.add_moments(query, start)
        self.add_block_sums(query, start, self.n)
        if self.seen == self.n:
            self.finish(self.complete(scaling, query.shape[1]))
        return out

    def complete(self, scaling: Scaling, num_attention_heads: int) -> LayerState:
        """The state after the last chunk."""
        state = self.state_of(scaling, num_attention_heads)
        self.add_sums(state)
        for w in self.needs.lookahead_sums:
            state.lookahead_sums[w] = self.lookahead_sums(w, state.keys, scaling)
        if window := self.needs.window:
            last = torch.cat([block[:, -window:] for block in self.queries], dim=1)
            state.queries = last[:, -window:].to(state.keys.device, copy=True)
        if self.needs.column_sums:
            state.column_sums, state.lse = self.sums, torch.cat(self.lse, dim=1)
        self.stored, self.sums, self.queries, self.lse = None, None, [], []
        return state

    def lookahead_sums(self, w: int, keys: Tensor, scaling: Scaling) -> Tensor:
        """Column sums [num_attention_heads, n] in which only the last w queries are causal; a chunk at a time."""
        sums, start = None, 0
        for block in self.queries:
            queries = block.to(keys.device)
            sums = column_sums(queries, keys, scaling, start, max(self.n - w, 0), sums=sums).sums
            start += block.shape[1]
        return sums


@torch.inference_mode()
def chunked_prefill(
    model: PreTrainedModel, input_ids: Tensor, needs: Needs, chunk: int, release: Release | None
) -> PrefillState:
    """`prefill` over input_ids [n] in chunks. With `release` each layer's state is passed to it in the last chunk.

    Raises UserError for a model whose rotation depends on the length of the text, which a chunk does not know.
    """
    n = len(input_ids)
    if growth := growth_of(model):
        raise UserError(f"prefill.chunk={chunk}: this model's rotation depends on {growth}: leave it out")
    check_continues(model.config, f"prefill.chunk={chunk} reads a prompt in pieces")
    layers = PromptLayers(model, n, needs, partial(ChunkedLayer, n, needs, release))
    totals = [0.0] * len(layers.places)  # of the hidden states' similarity over tokens
    for ids in input_ids[None].to(model.device).split(chunk, dim=1):
        with layers.observing(model) as similarities:
            logits = layers.read(model, ids)
        for layer, similarity in enumerate(similarities):
            totals[layer] += similarity * ids.shape[1]
    return layers.state(logits, [total / n for total in totals] if needs.hidden_similarity else [])
