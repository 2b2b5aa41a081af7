"""Methods on models: identity, shared first token, shared prefill, constant caches, rolling positions."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.evaluation.decode import generate
from kvbench.methods import H2O, Dense, Eviction, FullKV, Pyramid, StreamingLLM, WindowAttention
from kvbench.prefill import Needs, prefill
from tests.support.tiny import FAMILIES, LAYOUTS, SHAPES, prompt, tiny_model

METHODS = {
    "streaming": StreamingLLM(),
    "streaming-evict": StreamingLLM(decode="evict"),
    "streaming-rolling": StreamingLLM(decode="evict", rope="rolling"),
    "h2o": H2O(),
    "h2o-query": H2O(granularity="query_head"),
    "h2o-update": H2O(decode="update"),
    "h2o-update-query": H2O(decode="update", granularity="query_head"),
    "snapkv": Eviction(scoring=WindowAttention(8)),
    "snapkv-query": Eviction(scoring=WindowAttention(8), granularity="query_head"),
    "snapkv-union": Eviction(scoring=WindowAttention(8), granularity="query_head", storage=Dense("union")),
    "pyramid": Eviction(Pyramid(), WindowAttention(8)),
    "pyramid-official": Eviction(Pyramid(alloc="official"), WindowAttention(8), "query_head"),
}
STEPS = 24


def tokens(model, state, method, budget, steps=STEPS):
    return generate(model, method.compress(state, budget), state.logits, steps, frozenset()).tokens


@pytest.mark.parametrize(("family", "layout"), SHAPES)
def test_a_budget_that_does_not_bind_is_fullkv_token_for_token(family, layout):
    model = tiny_model(family, layout).double()
    state = prefill(model, prompt(40), Needs(8, True))
    expected = tokens(model, state, FullKV(), 40, steps=12)
    for name, method in METHODS.items():
        assert tokens(model, state, method, 40 + 12, steps=12) == expected, name
        if "evict" not in name and "rolling" not in name and "update" not in name:
            assert tokens(model, state, method, 40, steps=12) == expected, name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_shot_methods_share_fullkvs_first_token_and_then_differ(layout):
    model = tiny_model("llama", layout).double()
    state = prefill(model, prompt(60), Needs(8, True))
    outputs = {name: tokens(model, state, method, 14) for name, method in METHODS.items()}
    full = tokens(model, state, FullKV(), 60)
    assert {out[0] for out in outputs.values()} == {full[0]}
    assert all(out != full for out in outputs.values())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_union_and_unfolded_give_the_same_tokens_for_fewer_bytes(layout):
    model = tiny_model("llama", layout).double()
    state = prefill(model, prompt(60), Needs(8))
    unfolded, union = METHODS["snapkv-query"], METHODS["snapkv-union"]
    assert tokens(model, state, unfolded, 20) == tokens(model, state, union, 20)
    stored = [sum(cache.nbytes for cache in method.compress(state, 20)) for method in (unfolded, union)]
    if layout == "mha":
        assert stored[0] == stored[1]
    else:
        assert stored[1] < stored[0]


def test_sharing_a_prefill_changes_nothing():
    """One after another on a shared state gives what each gives alone, whatever ran before."""
    model, ids = tiny_model().double(), prompt(60)
    shared = prefill(model, ids, Needs(32, True))
    for other in METHODS.values():
        tokens(model, shared, other, 13, steps=6)
    for name, method in METHODS.items():
        alone = prefill(model, ids, method.needs)
        assert tokens(model, shared, method, 14) == tokens(model, alone, method, 14), name


def test_settings_leave_the_shared_state_as_it_was():
    model = tiny_model()
    state = prefill(model, prompt(60), Needs(8, True))
    tensors = [t for layer in state.layers for t in (layer.keys, layer.values, layer.column_sums, layer.queries)]
    before = [tensor.clone() for tensor in tensors]
    for method in METHODS.values():
        for budget in (14, 60, 61):
            tokens(model, state, method, budget, steps=8)
    assert all(torch.equal(now, then) for now, then in zip(tensors, before, strict=True))


@pytest.mark.parametrize("name", ["streaming-evict", "streaming-rolling", "h2o-update", "h2o-update-query"])
def test_evicting_methods_hold_a_constant_number_of_tokens(name):
    model = tiny_model()
    state = prefill(model, prompt(60), Needs(8, True))
    caches = METHODS[name].compress(state, 14)
    generate(model, caches, state.logits, 30, frozenset())
    spare = 1 if "h2o" in name else 0  # H2O's slot for the token to come
    assert all(cache.k.length == 14 + spare and cache.seen == 60 + 29 for cache in caches)


def test_rolling_streaming_llm_equals_the_official_algorithm():
    """Keys before RoPE, rotated at their slot; the query at the last slot; `budget` tokens with the new one."""
    model = tiny_model("llama", "gqa", num_layers=1)
    n, budget, sinks = 30, 12, 4
    state = prefill(model, prompt(n), Needs())
    layer = state.layers[0]
    cache = StreamingLLM(sinks, "evict", "rolling").compress_layer(layer, 0, 1, budget)
    raw = layer.rope.rotate(layer.keys, -torch.arange(n))  # before RoPE
    values = layer.values
    for t in range(20):
        generator = torch.Generator().manual_seed(t)
        query, key, value = (torch.randn(heads, 1, 8, generator=generator) for heads in (6, 2, 2))
        at = torch.tensor([n + t])
        cache.update(layer.rope.rotate(key, at)[None], value[None])
        out = cache.attend(layer.rope.rotate(query, at)[None], layer.scaling)[0]
        raw, values = torch.cat([raw, key], 1), torch.cat([values, value], 1)
        keep = [*range(sinks), *range(raw.shape[1] - (budget - sinks), raw.shape[1])]
        slots = layer.rope.rotate(raw[:, keep], torch.arange(budget)).repeat_interleave(3, 0)
        probabilities = (layer.rope.rotate(query, torch.tensor([budget - 1])) @ slots.mT * layer.scaling).softmax(-1)
        assert_close(out, probabilities @ values[:, keep].repeat_interleave(3, 0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_undoing_rope_and_doing_it_again_gives_the_models_keys(family):
    state = prefill(tiny_model(family), prompt(50), Needs())
    positions = torch.arange(50)
    for layer in state.layers:
        raw = layer.rope.rotate(layer.keys, -positions)
        assert_close(layer.rope.rotate(raw, positions), layer.keys, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(raw, layer.keys, atol=1e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_positions_go_on_from_the_tokens_seen_whatever_a_layer_keeps(layout):
    """Layers of different lengths, and still the logits of full attention with the dropped keys masked."""
    model = tiny_model("llama", layout, num_layers=1).double()
    n = 50
    state = prefill(model, prompt(n), Needs(8))
    method = Eviction(scoring=WindowAttention(8), granularity="query_head")
    caches = method.compress(state, 20)
    got = generate(model, caches, state.logits, 2, frozenset()).tokens

    eager = tiny_model("llama", layout, implementation="eager", num_layers=1).double()
    ids = torch.cat([prompt(n), torch.tensor(got[:1])])
    kept = method.select(state.layers[0], 0, 1, 20).indices
    mask = torch.full((1, kept.shape[0], n + 1, n + 1), float("-inf"), dtype=eager.dtype).triu(1)
    mask[:, :, -1, :n] = float("-inf")
    mask[0, :, -1].scatter_(1, kept, 0.0)
    assert eager(ids[None], attention_mask=mask).logits[0, -1].argmax().item() == got[1]


def test_bytes_and_ratio_of_a_state_summed_by_hand():
    model = tiny_model("llama", "gqa")  # 3 layers, 6 query heads, 2 KV heads, head_dim 8, float32
    state = prefill(model, prompt(60), Needs(8))
    assert state.nbytes == 3 * 2 * 2 * 60 * 8 * 4
    for name, heads in [("snapkv", 2), ("snapkv-query", 6)]:
        caches = METHODS[name].compress(state, 15)
        by_hand = sum(t.untyped_storage().nbytes() for cache in caches for t in cache.tensors())
        assert by_hand == sum(cache.nbytes for cache in caches) == 3 * 2 * heads * 15 * 8 * 4
        ratio = ReserveRatio.from_layers([cache.kept for cache in caches], by_hand, state.nbytes)
        assert (ratio.r1, ratio.r2, ratio.r3, ratio.r) == (0.25, 1, 1, 0.25)
        assert ratio.r_bytes == pytest.approx(0.25 * heads / 2)  # unfolded: g = 3 times the bytes
