"""Pooling-merge: budgets by layer, merging equal to a plain slow loop, at the prompt's end and while decoding."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given
from omegaconf import OmegaConf

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.settings import build_settings
from kvbench.methods import FullKV, PoolingMerge
from kvbench.methods.pooling_merge import MergingLayer
from kvbench.prefill import Needs, prefill
from tests.reference.slow_merging import SlowMerge
from tests.support.paths import ROOT
from tests.support.tiny import LAYOUTS, prompt, random_layer, random_state, tiny_model

CONF = str(ROOT / "conf")
POOLINGS = ["mean", "max", "max_norm", "best"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def assert_equal(cache, slow):
    for fast, plain in zip((cache.k.view, cache.v.view), slow.tensors(), strict=True):
        assert fast.shape == plain.shape
        if slow.rule.pooling == "mean":
            torch.testing.assert_close(fast, plain)
        else:
            assert torch.equal(fast, plain)


@given(
    n=st.integers(1, 40),
    limit=st.integers(1, 45),
    group=st.sampled_from([2, 3, 4, 8]),
    pooling=st.sampled_from(POOLINGS),
    weighted=st.booleans(),
    sinks=st.integers(0, 4),
    recent=st.none() | st.integers(0, 20),
    layout=st.sampled_from(list(LAYOUTS.values())),
    steps=st.integers(0, 12),
)
def test_merging_equals_the_plain_loop_step_by_step(n, limit, group, pooling, weighted, sinks, recent, layout, steps):
    limit = max(limit, sinks + 1 + group)
    weighted = weighted and pooling == "mean"
    method = PoolingMerge(pooling, group, 1, l0=limit, sinks=sinks, recent=recent, weighted=weighted, window=4)
    layer = random_layer(*layout, n=n, window=4)
    cache = method.compress_layer(layer, 0, 1, 0)
    protected = min(limit // 2 if recent is None else recent, limit - sinks - group + 1)
    slow = SlowMerge(layer, method, limit, protected)
    assert_equal(cache, slow)
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        key, value = torch.randn(2, 1, layout[1], 1, 8, generator=generator)
        query = torch.randn(1, layout[0], 1, 8, generator=generator)
        cache.update(key, value)
        cache.attend(query, layer.scaling)
        slow.step(key, value, query)
        assert_equal(cache, slow)
        assert cache.k.length <= limit
    if weighted:
        assert cache.counts.view[:, 0].tolist() == [entry["count"] for entry in slow.entries]
        assert cache.counts.view.sum() == n + steps
    assert sum(entry["count"] for entry in slow.entries) == n + steps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_low_precision_keeps_dtype_and_stays_finite(pooling, dtype):
    layer = random_layer(n=50, dtype=dtype)
    if pooling in ("mean", "max_norm"):
        layer.keys.mul_(15000)  # sums of two and squared norms leave float16's range
    cache = PoolingMerge(pooling, l0=12).compress_layer(layer, 0, 1, 0)
    assert cache.k.view.dtype == cache.v.view.dtype == dtype and cache.k.length == 12
    assert cache.k.view.isfinite().all() and cache.v.view.isfinite().all()


@pytest.mark.parametrize("group", [2, 4, 8])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_sinks_and_recent_tokens_keep_their_bits(pooling, group):
    layer = random_layer(n=60)
    cache = PoolingMerge(pooling, group, l0=25, sinks=3, recent=7).compress_layer(layer, 0, 1, 0)
    assert torch.equal(cache.k.view[:, :3], layer.keys[:, :3])
    assert torch.equal(cache.k.view[:, -7:], layer.keys[:, -7:])
    assert torch.equal(cache.v.view[:, -7:], layer.values[:, -7:])
    assert 25 - (group - 2) <= cache.k.length <= 25


@pytest.mark.parametrize("pooling", ["best", "max_norm"])
def test_chosen_entries_are_pairs_of_the_prompt_in_order(pooling):
    layer = random_layer(n=60)
    cache = PoolingMerge(pooling, 4, l0=20).compress_layer(layer, 0, 1, 0)
    for head in range(2):
        found = (layer.keys[head][None] == cache.k.view[head][:, None]).all(-1).nonzero()[:, 1]
        assert len(found) == cache.k.length and torch.equal(found, found.unique())
        assert torch.equal(layer.values[head, found], cache.v.view[head])


def test_equal_importance_keeps_the_later_and_equal_norm_the_earlier_token():
    values = torch.arange(12.0).view(1, 12, 1)
    for pooling, expected in (("best", [0, 2, 4, 6, 8, 10, 11]), ("max_norm", [0, 1, 3, 5, 7, 9, 11])):
        cache = MergingLayer(torch.ones(1, 12, 1), values, pooling, 2, 7, 1, 1, torch.ones(1, 12))
        assert cache.v.view.flatten().tolist() == expected


def test_mean_of_identical_tokens_is_that_token():
    layer = random_layer(n=40)
    layer.keys[:], layer.values[:] = layer.keys[:, :1].clone(), layer.values[:, :1].clone()
    for weighted in (False, True):
        cache = PoolingMerge("mean", 4, l0=13, weighted=weighted).compress_layer(layer, 0, 1, 0)
        torch.testing.assert_close(cache.k.view, layer.keys[:, : cache.k.length])
        torch.testing.assert_close(cache.v.view, layer.values[:, : cache.k.length])


def test_weights_give_every_token_the_same_share_of_a_mean():
    """0 and 1 become one, which then meets 2: the average of averages leans on 2."""
    values = torch.arange(4.0).view(1, 4, 1)
    for weighted, mean in ((True, 1.0), (False, 1.25)):
        cache = MergingLayer(values, values, "mean", 2, 2, 0, 1, weighted=weighted)
        assert cache.v.view.flatten().tolist() == [mean, 3.0]


def test_published_budgets_and_their_corrections():
    """Section 7.2 of the reference: L_0 = 4096, beta = 4, 32 layers."""
    corrected, printed = PoolingMerge(l0=4096), PoolingMerge(l0=4096, alloc="printed")
    limits = corrected.limits(0, 10**6, 32)
    assert (limits[0], limits[31]) == (4096, 1024)
    assert 81920 - 32 < sum(limits) <= 81920
    assert printed.limits(0, 10**6, 32)[31] == 1120
    for beta, mean, mean_printed in ((1, 1, 1), (2, 0.75, 0.758), (4, 0.625, 0.637), (8, 0.5625, 0.576)):
        for alloc, expected in (("corrected", mean), ("printed", mean_printed)):
            limits = PoolingMerge(beta=beta, alloc=alloc, l0=10**6).limits(0, 10**7, 32)
            assert sum(limits) / 32e6 == pytest.approx(expected, abs=6e-4)


def test_an_average_of_64_entries_at_beta_4_starts_at_102():
    limits = PoolingMerge().limits(64, 8000, 32)
    assert (limits[0], limits[31]) == (102, 25)


@given(
    n=st.integers(20, 5000),
    share=st.floats(0.01, 1.2),
    num_layers=st.integers(1, 80),
    beta=st.sampled_from([1, 1.5, 2, 4, 8]),
    alloc=st.sampled_from(["corrected", "printed"]),
)
def test_budgets_fall_with_depth_and_average_what_was_asked(n, share, num_layers, beta, alloc):
    method = PoolingMerge(beta=beta, alloc=alloc)
    budget = max(int(share * n), method.minimum_budget)
    limits = method.limits(budget, n, num_layers)
    assert limits == sorted(limits, reverse=True)
    assert limits[0] <= max(n, budget)
    floored = [limit == method.minimum_budget for limit in limits]
    if not any(floored):
        assert budget - 1 < sum(limits) / num_layers <= budget + 1e-9
    if alloc == "corrected" and num_layers > 1 and limits[0] < n and not any(floored):
        assert limits[-1] / limits[0] == pytest.approx(1 / beta, abs=1 / limits[0])
    if budget >= n:
        assert limits == [budget] * num_layers


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_are_the_analytic_ones_and_the_state_is_left_alone(layout, dtype, pooling):
    heads, kv_heads = LAYOUTS[layout]
    state = random_state(3, heads=heads, kv_heads=kv_heads, n=80, dtype=dtype)
    before = [(layer.keys.clone(), layer.window_votes(8).clone()) for layer in state.layers]
    method = PoolingMerge(pooling, beta=2, window=8)
    limits = method.limits(40, 80, 3)
    caches = method.compress(state, 40)
    noted = {"best": 4 * kv_heads}.get(pooling, 0)
    for cache, limit in zip(caches, limits, strict=True):
        assert cache.nbytes == limit * (2 * kv_heads * 8 * dtype.itemsize + noted)
        assert cache.kept.r1 == limit / 80 and cache.kept.nominal == limit
    stored = sum(cache.nbytes for cache in caches)
    ratio = ReserveRatio.from_layers([cache.kept for cache in caches], stored, state.nbytes)
    assert ratio.r == pytest.approx(sum(limits) / 240)
    for _ in range(90):
        for cache in caches:
            cache.update(torch.randn(1, kv_heads, 1, 8).to(dtype), torch.randn(1, kv_heads, 1, 8).to(dtype))
            cache.attend(torch.randn(1, heads, 1, 8).to(dtype), 0.3)
    # a block of slack, of which nothing is added over 90 tokens
    expected = [min(limit, 80) for limit in limits]
    assert [cache.k.length for cache in caches] == expected
    assert all(
        cache.nbytes == (limit + 64) * (2 * kv_heads * 8 * dtype.itemsize + noted)
        for cache, limit in zip(caches, expected, strict=True)
    )
    for layer, (keys, votes) in zip(state.layers, before, strict=True):
        assert torch.equal(layer.keys, keys) and torch.equal(layer.window_votes(8), votes)


def test_weighted_means_store_one_count_an_entry():
    layer = random_layer(n=80)
    plain, weighted = (
        PoolingMerge("mean", l0=40, weighted=flag).compress_layer(layer, 0, 1, 0) for flag in (False, True)
    )
    assert weighted.nbytes - plain.nbytes == 40 * 4
    assert weighted.counts.view.sum() == 80


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("n", [1, 7, 60])
def test_a_budget_that_does_not_bind_is_full_kv_to_the_bit(n, pooling):
    model = tiny_model().double()
    method = PoolingMerge(pooling)
    state = prefill(model, prompt(n), method.needs)
    full = generate(model, FullKV().compress(state, n), state.logits, 30, frozenset()).tokens
    for setting, budget in ((method, n + 30), (PoolingMerge(pooling, l0=4 * (n + 30)), 0)):
        caches = setting.compress(state, budget)
        assert [cache.kept.r1 for cache in caches] == [1, 1, 1]
        assert generate(model, caches, state.logits, 30, frozenset()).tokens == full
    assert [cache.kept.r1 for cache in method.compress(state, max(n, 7))] == [1, 1, 1]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_models_decode_within_the_limits_and_repeat_themselves(layout, pooling):
    model = tiny_model(layout=layout)
    method = PoolingMerge(pooling)
    state = prefill(model, prompt(70), method.needs)
    full = generate(model, FullKV().compress(state, 70), state.logits, 24, frozenset()).tokens
    runs = []
    for _ in range(2):
        caches = method.compress(state, 30)
        runs.append(generate(model, caches, state.logits, 24, frozenset()).tokens)
        assert [cache.k.length for cache in caches] == method.limits(30, 70, 3)
        assert {cache.get_seq_length() for cache in caches} == {93}
    assert runs[0] == runs[1] != full and runs[0][0] == full[0]


def test_only_best_observes_attention():
    assert PoolingMerge("mean").needs == Needs() and PoolingMerge("best", window=16).needs == Needs(window=16)
    assert PoolingMerge().compress_at == "every_step" and PoolingMerge().full_cache_tokens == 1


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"pooling": "median"}, "median"),
        ({"group": 1}, "group=1"),
        ({"beta": 0.5}, "beta=0.5"),
        ({"beta": "4"}, "beta='4'"),
        ({"alloc": "exact"}, "corrected"),
        ({"l0": 6}, "l0=6 must be an integer of at least 7"),
        ({"sinks": -1}, "sinks=-1"),
        ({"recent": -1}, "recent=-1"),
        ({"window": 0}, "window=0"),
        ({"weighted": True}, "pooling=mean"),
    ],
)
def test_values_without_meaning_are_refused(arguments, word):
    with pytest.raises(UserError, match=word):
        PoolingMerge(**arguments)


def test_yaml_takes_an_average_or_the_papers_l0():
    for extra, labels in ((), ["pooling_merge 0.5"]), (["method.pooling_merge.l0=4096"], ["pooling_merge"]):
        with initialize_config_dir(CONF, version_base="1.3"):
            config = compose("config", overrides=["method=[pooling_merge]", *extra])
        settings = build_settings(OmegaConf.to_container(config, resolve=True)["method"], 0.5, None)
        assert [setting.label for setting in settings] == labels


@given(
    n=st.integers(1, 3000),
    layers=st.integers(1, 80),
    beta=st.floats(1, 50),
    share=st.floats(0, 1),
    group=st.integers(2, 8),
)
def test_a_budget_is_never_exceeded_from_the_smallest_on(n, layers, beta, share, group):
    """The pyramid flattens where its top would fall below the least, so that its mean stays."""
    method = PoolingMerge(beta=beta, group=group)
    budget = max(int(share * n), method.floor(n, layers))
    limits = method.limits(budget, n, layers)
    assert all(a >= b for a, b in pairwise(limits)) and limits[-1] >= method.minimum_budget
    assert layers * (budget - 1) < sum(limits) <= layers * budget
