"""PyramidInfer: kept sets and tokens against a plain reading of it on eager attention."""

import math
from dataclasses import fields
from itertools import pairwise
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, GPT2Config, GraniteConfig

from kvbench.cache.base import storage_bytes
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.settings import build_settings
from kvbench.methods import FullKV, PyramidInfer
from kvbench.methods.pyramidinfer import ThinningLayer
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.attention import window_attention
from kvbench.ops.attention_mass import weighted_rows
from kvbench.ops.softmax import Softmax
from kvbench.prefill import FullPrefill, Needs, prefill
from kvbench.prefill.pruned import PrunedPrefill, pruned_prefill
from kvbench.utils.targets import DESCRIBING
from tests.reference.eager_pyramidinfer import Oracle
from tests.support import config as composed
from tests.support.tiny import FAMILIES, LAYOUTS, SHAPES, prompt, ratio_of, tiny_model

pytestmark = pytest.mark.heavy

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def small(**options) -> PyramidInfer:
    """A method whose constants fit prompts of tens of tokens."""
    return PyramidInfer(
        **{"schedule": "cosine", "recent_ratio": 0.1, "decay": 0.5, "min_ctx": 6, "exceed_length": 5} | options
    )


def run(model, ids, method, budget=None, steps=0):
    """State and caches after the method's own pass, and `steps` greedy tokens."""
    layers, n = model.config.num_hidden_layers, len(ids)
    budget = n if budget is None else budget
    state = pruned_prefill(model, ids, method.plan(n, layers, budget))
    caches = method.compress(state, budget)
    tokens = generate(model, caches, state.logits, steps, frozenset()).tokens if steps else []
    return state, caches, tokens


@pytest.mark.parametrize(("family", "layout"), SHAPES)
def test_kept_sets_and_tokens_are_the_oracles(family, layout):
    method, ids = small(decode="compress"), prompt(60)
    oracle = Oracle(tiny_model(family, layout, "eager", num_layers=4).double(), method, 0.5)
    expected = oracle.tokens(ids, 40)
    state, _, tokens = run(tiny_model(family, layout, num_layers=4).double(), ids, method, steps=40)
    assert [layer.positions.tolist() for layer in state.layers] == oracle.entered
    assert tokens == expected
    assert len(oracle.entered[-1]) < 45  # something was dropped, or this shows nothing


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "constant"},
        {"interval": 2},
        {"sinks": 0, "min_ctx": 0, "recent_ratio": 0.0},
        {"distance_weight": 5.0, "recent_ratio": 0.3},
        {"decode": "none"},
        {"exceed_length": 1, "gen_decay_ratio": 1.0},
        {"exceed_length": 16, "gen_compress_ratio": 0.3},
    ],
    ids=str,
)
def test_every_option_does_what_the_oracle_does(options):
    n = 75
    method, ids = small(**options), prompt(n, seed=n)
    oracle = Oracle(tiny_model(implementation="eager", num_layers=5).double(), method, 0.5)
    expected = oracle.tokens(ids, 50)
    state, caches, tokens = run(tiny_model(num_layers=5).double(), ids, method, steps=50)
    assert [layer.positions.tolist() for layer in state.layers] == oracle.entered
    assert tokens == expected
    assert [cache.k.length for cache in caches] == [layer.keys.shape[2] for layer in oracle.cache.layers]
    for cache, layer in zip(caches, oracle.cache.layers, strict=True):
        torch.testing.assert_close(cache.k.view, layer.keys, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(cache.v.view, layer.values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_kept_sets_are_nested_and_hold_sinks_and_recent_tokens(dtype):
    n, method = 90, small(decay=0.6)
    state, caches, _ = run(tiny_model(num_layers=5).to(dtype), prompt(n), method)
    sets = [set(layer.positions.tolist()) for layer in state.layers]
    assert sets[0] == set(range(n))
    assert all(deeper <= lower for lower, deeper in pairwise(sets))
    assert all(set(range(4)) | set(range(n - 1 - 9, n)) <= kept for kept in sets)
    assert [len(kept) for kept in sets] == method.plan(n, 5, n).lengths(n)
    assert all((layer.positions.diff() > 0).all() for layer in state.layers)
    assert state.logits.isfinite().all()
    assert all(cache.k.buffer.dtype is dtype for cache in caches)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", [small(decay=1.0, decode="none"), small(decay=None)], ids=["decay=1", "budget=n"])
def test_without_pruning_it_is_full_kv_to_the_bit(method, family, dtype):
    model, ids = tiny_model(family).to(dtype), prompt(70)
    full = prefill(model, ids, Needs())
    state, _, tokens = run(model, ids, method, steps=24)
    assert torch.equal(state.logits, full.logits)
    for mine, theirs in zip(state.layers, full.layers, strict=True):
        assert torch.equal(mine.keys, theirs.keys) and torch.equal(mine.values, theirs.values)
    assert tokens == generate(model, FullKV().compress(full, 70), full.logits, 24, frozenset()).tokens


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8, 9, 12])
def test_prompts_too_short_to_cut_stay_whole(n):
    model = tiny_model()
    state, caches, tokens = run(model, prompt(n), small(recent_ratio=0.3, min_ctx=8), steps=5)
    assert [layer.n for layer in state.layers] == [n] * 3 and len(tokens) == 5
    assert all(cache.kept.r1 == 1 for cache in caches)


def test_a_prompt_of_one_repeated_token_keeps_the_first_of_equals():
    state, _, _ = run(tiny_model(num_layers=4), torch.full((50,), 7), small(decay=0.5))
    again, _, _ = run(tiny_model(num_layers=4), torch.full((50,), 7), small(decay=0.5))
    assert [x.positions.tolist() for x in state.layers] == [x.positions.tolist() for x in again.layers]
    assert {0, 1, 2, 3} <= set(state.layers[-1].positions.tolist())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_are_those_of_the_lengths_over_the_whole_prompt(layout):
    n, method = 80, small()
    model = tiny_model(layout=layout, num_layers=4)
    state, caches, _ = run(model, prompt(n), method)
    lengths = method.plan(n, 4, n).lengths(n)
    per_token = 2 * LAYOUTS[layout][1] * 8 * 4
    assert [cache.nbytes for cache in caches] == [per_token * length for length in lengths]
    assert state.nbytes == 4 * n * per_token and state.n == n
    ratio = ratio_of(caches, state)
    assert ratio.r == pytest.approx(fmean(lengths) / n)
    assert ratio.r_bytes == pytest.approx(ratio.r)
    assert [cache.get_seq_length() for cache in caches] == [n] * 4


def test_decoding_never_touches_the_prompt_and_keeps_the_stated_counts():
    n, steps, method = 60, 61, small(decay=0.6, recent_ratio=0.1, exceed_length=5)
    model = tiny_model(num_layers=4)
    state, caches, _ = run(model, prompt(n), method, steps=steps)
    tail, fed = 1 + 6, steps - 1
    cut = (fed - tail) // 5  # blocks that have their `tail` younger tokens
    keep = [max(int(5 * 0.9 * (0.9 * (math.cos(math.pi * layer / 4) + 1) / 2 + 0.1)), 1) for layer in range(4)]
    assert len(set(keep)) > 1
    for layer, cache, k in zip(state.layers, caches, keep, strict=True):
        assert torch.equal(cache.k.view[0, :, : layer.n], layer.keys)
        assert torch.equal(cache.v.view[0, :, : layer.n], layer.values)
        assert cache.k.length == layer.n + fed - cut * (5 - k)
        assert cache.get_seq_length() == n + fed
        assert cache.nbytes == storage_bytes([cache.k.buffer, cache.v.buffer]) + 4 * (fed - cut * 5)


def test_decoded_tokens_are_scored_by_a_models_softmax_and_later_queries_weigh_more():
    draw = torch.Generator().manual_seed(0)
    keys, query = (3 * torch.randn(heads, 7, 8, generator=draw) for heads in (2, 4))
    how = Softmax(0.5, softcap=2.0, sinks=torch.tensor([0.0, 1.0, 2.0, 3.0]))
    layer = ThinningLayer(keys[:, :1], keys[:, :1], 1, Kept.tokens(1, 1, 1, 2), 4, 2, 1, 3.0)
    expected = torch.zeros(2)
    for token in range(1, 6):
        layer.append(keys[None, :, token : token + 1], keys[None, :, token : token + 1])
        layer.attend(query[None, :, token : token + 1], how)
        if token > 2:  # behind the first block
            logits = (query[:, token : token + 1] @ keys[:, : token + 1].repeat_interleave(2, dim=0).mT)[:, 0] * 0.5
            capped = torch.cat([2 * (logits / 2).tanh(), how.sinks[:, None]], dim=1)
            weight = 1 + 2 * (token - 3) / 3  # from 1 to 3 over the four queries that score a block
            expected += weight * capped.softmax(dim=1)[:, 1:3].mean(dim=0)
    assert torch.allclose(layer.scores[:2], expected, atol=1e-6)


def test_equal_plans_share_a_pass_and_other_methods_have_the_full_one():
    assert small(decode="none").plan(90, 4, 90) == small(decode="compress").plan(90, 4, 90)
    assert FullKV().plan(90, 4, 90) == FullPrefill()


@pytest.mark.parametrize(
    "config, message",
    [
        (GraniteConfig(embedding_multiplier=12.0, logits_scaling=8.0, **SIZES), "does more than its layers in turn"),
        (GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=97), "no plain stack of layers"),
    ],
)
def test_a_model_that_is_more_than_its_layers_is_refused(config, message):
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    with pytest.raises(UserError, match=message):
        pruned_prefill(model, prompt(40), PrunedPrefill((0.5, 0.5), 5, 4, 6, 1.2))


def test_rows_are_weighed_and_averaged_over_heads():
    queries, keys = torch.randn(6, 16, 8), torch.randn(2, 40, 8)
    weights = torch.rand(16)
    every = window_attention(queries, keys, 0.3).mean(dim=0)
    expected = (every * weights[:, None]).sum(dim=0)
    torch.testing.assert_close(weighted_rows(queries, keys, 0.3, weights), expected)


@given(
    n=st.integers(1, 90),
    layout=st.sampled_from(list(LAYOUTS)),
    recent=st.floats(0, 0.9),
    decay=st.floats(0.05, 1),
    interval=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_any_pass_gives_nested_sets_of_the_stated_lengths_and_bytes(n, layout, recent, decay, interval, dtype):
    method = small(recent_ratio=recent, decay=decay, interval=interval)
    state, caches, _ = run(tiny_model(layout=layout, num_layers=4).to(dtype), prompt(n), method)
    plan = method.plan(n, 4, n)
    sets = [set(layer.positions.tolist()) for layer in state.layers]
    assert [len(kept) for kept in sets] == plan.lengths(n)
    assert sets[0] == set(range(n)) and all(deeper <= lower for lower, deeper in pairwise(sets))
    assert set(range(min(4, n))) | set(range(n - plan.tail, n)) <= sets[-1]
    token = 2 * LAYOUTS[layout][1] * 8 * dtype.itemsize
    assert [cache.nbytes for cache in caches] == [token * len(kept) for kept in sets]
    assert state.nbytes == 4 * n * token


@pytest.mark.parametrize("name", ["pyramidinfer", "pyramidinfer_official"])
def test_the_configuration_builds_it_with_every_option_named(name):
    config = composed.method_configs(name)[name]
    (setting,) = build_settings({name: config}, ratio=0.5, budget=None)
    assert set(config) - {*DESCRIBING, "_target_"} == {field.name for field in fields(PyramidInfer)}
    assert setting.label == ("pyramidinfer 0.5" if name == "pyramidinfer" else name)


def test_the_embedded_model_without_pruning_is_full_kv(embedded):
    ids = embedded.encode("Name three rivers and the seas they reach.", chat=True)
    full = prefill(embedded.model, ids, Needs())
    expected = generate(embedded.model, FullKV().compress(full, full.n), full.logits, 5, frozenset()).tokens
    state, _, tokens = run(embedded.model, ids, PyramidInfer(decay=1.0, decode="none"), steps=5)
    assert torch.equal(state.logits, full.logits) and tokens == expected


@pytest.mark.parametrize(
    "options, message",
    [
        ({"schedule": "linear"}, "schedule"),
        ({"decode": "grow"}, "decode"),
        ({"recent_ratio": 1.0}, "recent_ratio"),
        ({"recent_ratio": "0.2"}, "recent_ratio"),
        ({"decay": 0.0}, "decay"),
        ({"decay": 1.5}, "decay"),
        ({"gen_decay_ratio": -1}, "gen_decay_ratio"),
        ({"gen_compress_ratio": 2}, "gen_compress_ratio"),
        ({"interval": 0}, "interval"),
        ({"exceed_length": 0}, "exceed_length"),
        ({"min_ctx": -1}, "min_ctx"),
        ({"sinks": 5, "min_ctx": 4}, "sinks=5"),
        ({"distance_weight": 0}, "distance_weight"),
        ({"distance_weight": 1e308}, "distance_weight"),  # more than a float32 holds ended a run in a traceback
    ],
)
def test_impossible_options_are_refused_by_name(options, message):
    with pytest.raises(UserError, match=message):
        PyramidInfer(**options)
