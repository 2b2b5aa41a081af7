"""A prefill that drops tokens after each chunk: transformers with a cache cut by hand, and the bytes held."""

import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from transformers import DynamicCache

from kvbench.cache.held import Held
from kvbench.errors import UserError
from kvbench.models.cache_argument import as_argument
from kvbench.ops.column_sums import column_sums
from kvbench.prefill import EvictingPrefill, Needs, PrefillState, prefill
from kvbench.prefill.chunked import ChunkedPrefill
from kvbench.prefill.evicting import EvictingLayer
from tests.support.hybrids import hybrid_model
from tests.support.living import Living
from tests.support.sliding import sliding_model
from tests.support.tiny import LAYOUTS, prompt, tiny_model

N, BUDGET = 90, 30


def distinctive(keys: torch.Tensor, budget: int) -> torch.Tensor | None:
    """KeyDiff's choice of keys [heads, len, head_dim] in the words of its paper: the least like the mean unit key."""
    if keys.shape[1] <= budget:
        return None
    unit = keys / keys.norm(dim=-1, keepdim=True)
    anchor = unit.mean(dim=1, keepdim=True)
    return F.cosine_similarity(keys, anchor, dim=-1).argsort(dim=1)[:, :budget].sort(dim=1).values


def plan(chunk: int, budget: int = BUDGET) -> EvictingPrefill:
    return EvictingPrefill(chunk, f"keydiff at {budget}", lambda layer: distinctive(layer.keys, budget))


def by_hand(layout: str, chunk: int):
    """The last logits, and what is left in each layer, of transformers' eager attention over a cache that is cut."""
    model, cache, kept = tiny_model(layout=layout, implementation="eager").double(), DynamicCache(), None
    for start in range(0, N, chunk):
        ids = prompt(N)[None, start : start + chunk]
        stored, q = cache.get_seq_length(), ids.shape[1]
        seen = torch.ones(q, stored + q, dtype=torch.bool).tril(stored)
        mask = torch.zeros(1, 1, q, stored + q).double().masked_fill(~seen, torch.finfo(torch.float64).min)
        positions = torch.arange(start, start + q)[None]
        with torch.inference_mode():
            out = model(ids, attention_mask=mask, position_ids=positions, **as_argument(model, cache), use_cache=True)
        kept = [None] * len(cache.layers) if kept is None else kept
        for index, layer in enumerate(cache.layers):
            heads = layer.keys.shape[1]
            new = positions.expand(heads, -1)
            kept[index] = new if kept[index] is None else torch.cat([kept[index], new], dim=1)
            if (best := distinctive(layer.keys[0], BUDGET)) is not None:
                rows = best[None, ..., None].expand(-1, -1, -1, layer.keys.shape[3])
                layer.keys, layer.values = layer.keys.gather(2, rows), layer.values.gather(2, rows)
                kept[index] = kept[index].gather(1, best)
    return out.logits[0, -1], kept, cache


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_a_prompt_is_read_as_by_transformers_with_a_cache_that_is_cut_after_each_chunk(layout, chunk):
    state = plan(chunk).run(tiny_model(layout=layout).double(), prompt(N), Needs())
    logits, kept, cache = by_hand(layout, chunk)
    torch.testing.assert_close(state.logits, logits, rtol=1e-4, atol=1e-4)
    for layer, positions, stored in zip(state.layers, kept, cache.layers, strict=True):
        assert torch.equal(layer.positions, positions) and (layer.n, layer.prompt) == (BUDGET, N)
        torch.testing.assert_close(layer.keys, stored.keys[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(layer.values, stored.values[0], rtol=1e-4, atol=1e-4)


def test_one_chunk_is_the_whole_pass_and_what_is_dropped_after_it():
    model = tiny_model()
    state, whole = plan(N).run(model, prompt(N), Needs(window=8)), prefill(model, prompt(N), Needs(window=8))
    assert torch.equal(state.logits, whole.logits) and state.nbytes == whole.nbytes
    for layer, full in zip(state.layers, whole.layers, strict=True):
        best = distinctive(full.keys, BUDGET)
        assert torch.equal(layer.keys, full.keys.gather(1, best[..., None].expand(-1, -1, 8)))
        assert torch.equal(layer.positions, best) and torch.equal(layer.queries, full.queries)


@pytest.mark.parametrize("chunk, budget", [(16, 30), (30, 30), (40, 24)])
def test_the_most_bytes_are_all_budgets_a_chunk_and_the_copy_that_replaces_it(chunk, budget):
    state = plan(chunk, budget).run(tiny_model(num_layers=5), prompt(N), Needs())
    token = 2 * 2 * 8 * 4  # K and V, two KV heads of eight float32
    copied = max(budget, chunk if chunk >= budget else budget) // 2  # one of K and V at a time
    assert (5 * budget + chunk) * token < state.peak_bytes <= (5 * budget + chunk + copied) * token
    assert state.peak_bytes < state.nbytes == 5 * N * token


def test_last_queries_and_the_attention_of_all_are_those_of_the_tokens_that_are_left():
    generator, scaling = torch.Generator().manual_seed(0), 0.3
    keys, queries = (torch.randn(heads, 25, 8, generator=generator) for heads in (2, 6))
    best = torch.tensor([[0, 3, 5, 9, 11, 14, 18, 19], [1, 2, 3, 4, 5, 6, 7, 8]])
    layer = EvictingLayer(lambda state: best if state.n == 20 else None, Needs(5, True), 1, 3)
    for start in (0, 20, 22):
        new = slice(start, {0: 20, 20: 22, 22: 25}[start])
        layer.update(keys[None, :, new], keys[None, :, new])
        layer.attend(queries[None, :, new], scaling)
    state = layer.state
    assert torch.equal(state.queries, queries[:, -5:]) and (state.index, state.num_layers, state.seen) == (1, 3, 25)
    assert state.positions.tolist() == [[*row, 20, 21, 22, 23, 24] for row in best.tolist()]
    whole, _ = column_sums(queries[:, :20], keys[:, :20], scaling)
    left = whole.gather(1, best.repeat_interleave(3, dim=0))
    for end, q in ((10, 2), (13, 3)):
        more, _ = column_sums(queries[:, 20 : 22 if q == 2 else 25][:, -q:], state.keys[:, :end], scaling, end - q)
        left = F.pad(left, (0, q)) + more
    torch.testing.assert_close(state.column_sums, left)


class WatchedHeld(Held):
    """Notes how many of the replaced tensors are alive when the next one is made."""

    def __init__(self):
        super().__init__()
        self.replaced, self.alive = [], []

    def replace(self, old, new):
        self.alive.append(sum(memory() is not None for memory in self.replaced))
        if old is not None:
            self.replaced.append(weakref.ref(old.untyped_storage()))
        return super().replace(old, new)


def test_keys_are_free_before_values_are_replaced_as_the_peak_counts_them():
    held, query = WatchedHeld(), torch.ones(1, 6, 20, 8)
    layer = EvictingLayer(lambda state: torch.arange(15)[None], Needs(5, True))
    layer.held = held
    for _ in range(3):
        layer.update(torch.randn(1, 2, 20, 8), torch.randn(1, 2, 20, 8))
        layer.attend(query, 0.3)
    assert len(held.replaced) == 10 and held.alive == [0] * 12


def test_layers_with_a_sliding_window_keep_it():
    model, ids = sliding_model("gemma3"), prompt(N)
    state = plan(16).run(model, ids, Needs())
    whole = ChunkedPrefill(16).run(model, ids, Needs())
    assert list(state.fixed_layers) == list(whole.fixed_layers) and [layer.n for layer in state.layers] == [BUDGET] * 2
    for place, layer in state.fixed_layers.items():
        assert layer.filled_bytes == whole.fixed_layers[place].filled_bytes
    first = (state.fixed_layers[0].k.view, whole.fixed_layers[0].k.view)  # below the layers that drop tokens
    torch.testing.assert_close(*first, rtol=1e-4, atol=1e-4)
    assert state.peak_bytes > state.fixed_bytes + sum(2 * layer.keys.nbytes for layer in state.layers)


@pytest.mark.parametrize("make", [tiny_model, partial(sliding_model, "gemma3"), partial(hybrid_model, "gemma3n_text")])
def test_the_peak_is_what_lived_with_the_layers_that_nothing_drops(make, monkeypatch):
    model, peaks, living = make(), [], Living(monkeypatch)

    def read() -> PrefillState:
        state = plan(40).run(model, prompt(N), Needs())
        peaks.append(state.peak_bytes)
        return state

    assert living.most_while(read) == peaks[0]


def test_a_release_gets_each_layer_when_the_prompt_has_been_read():
    released = []
    state = plan(16).run(tiny_model(), prompt(N), Needs(), released.append)
    assert state.layers == [] and [layer.index for layer in released] == [0, 1, 2]
    assert all(layer.seen == N and layer.n == BUDGET for layer in released)


def test_a_rotation_that_depends_on_the_length_is_refused():
    model = tiny_model()
    model.model.rotary_emb.rope_type = "dynamic"
    with pytest.raises(UserError, match=r"rotation depends on the length of the text .*, which a chunk does not know"):
        plan(16).run(model, prompt(N), Needs())


def test_a_choice_is_told_how_long_the_text_is_beside_what_is_left_of_it():
    told = []

    def keep(layer):
        told.append((layer.n, layer.seen))
        return torch.arange(min(layer.n, BUDGET))[None]

    EvictingPrefill(40, "first", keep).run(tiny_model(num_layers=1), prompt(N), Needs())
    assert told == [(40, 40), (BUDGET + 40, 80), (BUDGET + 10, N)]
