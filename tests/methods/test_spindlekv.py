"""SpindleKV: scores, ratios, whole models."""

import math
from functools import partial
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from kvbench.benchmarks.haystack import generated
from kvbench.cache.reserve_ratio import Kept, ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import (
    Codebook,
    ColumnSums,
    CriticalKV,
    Dense,
    Eviction,
    FullKV,
    LinearPyramid,
    Method,
    SpindleKV,
    Uniform,
    WindowAverage,
)
from kvbench.methods.selection import reduce_group, top_indices
from kvbench.methods.spindlekv.method import Selector
from kvbench.ops.rope import Rope
from kvbench.prefill import prefill
from kvbench.utils.targets import build
from tests.support.codebook_layers import book_sizes, read_keys, read_values
from tests.support.paths import ROOT
from tests.support.tiny import LAYOUTS, prompt, random_layer, random_state, ratio_of, tiny_model

ROPE = Rope.from_model(tiny_model())
at_eviction_ratio = partial(SpindleKV, control=None)


# --------------------------------------------------------------------------------------------- scores


def test_window_scores_are_the_mean_over_the_windows_queries():
    layer = random_layer(n=40, window=8)
    group = layer.queries.unflatten(0, (2, 3))
    logits = torch.einsum("kgwd,knd->kgwn", group, layer.keys) * layer.scaling
    future = torch.arange(40) > torch.arange(32, 40)[:, None]
    attention = logits.masked_fill(future, -math.inf).softmax(dim=-1).flatten(0, 1)
    assert WindowAverage(8).votes(layer).allclose(attention.mean(dim=1), atol=1e-6)
    printed = WindowAverage(8, "printed").votes(layer)
    assert printed[:, 5].allclose(attention.sum(dim=1)[:, 5] / 35, atol=1e-6)


def test_the_window_norm_keeps_what_unpooled_snapkv_keeps_and_the_printed_one_later_tokens():
    layer = random_layer(n=200, window=8, rope=ROPE)
    kept = {}
    for norm in ("window", "printed"):
        method = at_eviction_ratio(window=8, score_norm=norm)
        kept[norm] = method.select(layer, 0, 1, 60).indices
    expected = top_indices(layer.window_votes(8)[:, :192], 52)
    assert kept["window"][:, :52].equal(expected)
    assert kept["printed"].float().mean() > kept["window"].float().mean() + 5


def test_repeat_selects_per_query_head_and_otherwise_by_the_groups_mean():
    layer = random_layer(n=60, window=8, rope=ROPE)
    unfolded = at_eviction_ratio(window=8).select(layer, 0, 3, 30).indices
    shared = at_eviction_ratio(window=8, repeat=False).select(layer, 0, 3, 30).indices
    assert len(unfolded) == 6 and len(shared) == 2
    k = shared.shape[1] - 8
    expected = top_indices(reduce_group(layer.window_votes(8), 2, "mean")[:, :52], k)
    assert shared[:, :k].equal(expected)


@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("scoring", [None, ColumnSums(recent=8), ColumnSums(), CriticalKV(WindowAverage(8))])
def test_tokens_chosen_by_rank_are_those_that_the_eviction_selects(repeat, scoring):
    """With equal scores, for layers in any order, and for windows that grow with the budget."""
    state = random_state(5, n=60, window=8, rope=ROPE)
    for layer in state.layers:
        layer.column_sums = torch.rand(6, 60, generator=torch.Generator().manual_seed(layer.index)).round(decimals=1)
        layer.value_output_norm = torch.ones(6, 60)
    method = at_eviction_ratio(window=8, repeat=repeat, scoring=scoring)
    select = Selector(method, state.layers)
    for budget, places in (
        (60, [0]),
        (20, range(5)),
        (30.5 if scoring is None else 30, [3, 1]),
        (60, [4]),
        (12, range(5)),
    ):
        for index, found in zip(places, select(places, budget), strict=True):
            layer = state.layers[index]
            expected = method.select(layer, index, 5, budget)
            assert found.mask(layer).equal(expected.mask(layer))
            assert found.positions(layer) == expected.positions(layer)
            assert (found.nominal, found.heads(layer)) == (expected.nominal, expected.heads(layer))
            assert found.longest(layer) == expected.longest(layer)


# ------------------------------------------------------------------------------------- whole models


def tokens_of(model, state, method, budget, steps=30):
    return generate(model, method.compress(state, budget), state.logits, steps, frozenset()).tokens


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("repeat", [True, False])
def test_with_all_kept_and_theta_near_one_it_is_fullkv(layout, repeat):
    model = tiny_model(layout=layout)
    method = at_eviction_ratio(window=8, theta_k=1, theta_v=1, repeat=repeat, raw_window=False)
    state = prefill(model, prompt(60), method.needs | FullKV().needs)
    assert tokens_of(model, state, method, 60) == tokens_of(model, state, FullKV(), 60)
    for cache, layer in zip(method.compress(state, 60), state.layers, strict=True):
        read = torch.stack(read_keys(cache))
        assert read.allclose(layer.keys, atol=1e-4) and not read.equal(layer.keys)


@pytest.mark.parametrize("theta", [1.0, 0.9])
def test_eviction_alone_decides_while_all_are_raw(theta):
    """window = n leaves nothing to code: bit for bit FullKV, whatever the thresholds."""
    model = tiny_model()
    method = at_eviction_ratio(window=64, theta_k=theta, theta_v=theta)
    state = prefill(model, prompt(60), method.needs)
    caches = method.compress(state, method.minimum_budget)
    assert [c.nbytes for c in caches] == [layer.nbytes for layer in state.layers]
    query = torch.randn(1, 6, 1, 8)
    for cache, full in zip(caches, FullKV().compress(state, 60), strict=True):
        assert cache.attend(query, 0.3).allclose(full.attend(query, 0.3), atol=1e-6)


@pytest.mark.parametrize("scope", ["kv_group", "head"])
def test_repeat_makes_no_difference_without_groups(scope):
    state = prefill(tiny_model(layout="mha"), prompt(80), at_eviction_ratio(window=8).needs)
    caches = [
        at_eviction_ratio(window=8, repeat=r, scope=scope, theta_v=0.8).compress(state, 30) for r in (True, False)
    ]
    assert ratio_of(caches[0], state) == ratio_of(caches[1], state)
    for one, other in zip(*caches, strict=True):
        for a, b in zip(read_keys(one) + read_values(one), read_keys(other) + read_values(other), strict=True):
            assert a.equal(b)


def test_lossless_merging_saves_nothing_over_kv_heads_and_two_thirds_over_query_heads():
    """Unfolded copies merge: r = 1/g over query heads, whatever is kept, and no fewer bytes than FullKV."""
    state = random_state(n=64, window=8, rope=ROPE)
    unfolded, own = (
        ratio_of(at_eviction_ratio(window=8, theta_k=1, theta_v=1, ratio_over=over).compress(state, 64), state)
        for over in ("query_heads", "kv_heads")
    )
    assert unfolded.r1 == 1 and unfolded.r2 == pytest.approx(1 / 3)
    assert unfolded.r < 0.36 and unfolded.r_bytes > 1
    assert own.r1 == own.r2 == 1 and own.r == own.r3 == pytest.approx(unfolded.r * 3, rel=0.01)
    assert (unfolded.ratio_over, own.ratio_over) == ("query_heads", "kv_heads")
    assert unfolded.r_bytes == own.r_bytes


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_r_over_kv_heads_is_entries_and_raw_vectors_over_the_models_own_cache(scope):
    """(|C| + raw window)·r3 over the 2·num_key_value_heads·n vectors, by counting what the cache holds."""
    state = random_state(3, n=80, window=8, rope=ROPE)
    method = at_eviction_ratio(window=8, theta_k=0.6, theta_v=0.5, scope=scope)
    for index, (layer, cache) in enumerate(zip(state.layers, method.compress(state, 30), strict=True)):
        entries = sum(sum(sizes) for sizes in book_sizes(cache))
        raw = len(cache.raw.keys) + len(cache.raw.values)
        kept = cache.kept
        assert kept.r1 * kept.r2 == pytest.approx((entries + raw) / (2 * 2 * 80))
        sets = method.select(layer, index, 3, 30).indices.unflatten(0, (2, 3)).tolist()
        retained = sum(len(set().union(*group)) for group in sets)
        assert kept.r1 == pytest.approx(retained / (2 * 80))


def test_query_heads_are_named_where_each_stores_its_own_choice():
    state = random_state(2, n=80, window=8, rope=ROPE)
    ratios = [
        ratio_of(Eviction(scoring=WindowAverage(8), granularity=g).compress(state, 40), state)
        for g in ("kv_head", "query_head")
    ]
    assert [ratio.ratio_over for ratio in ratios] == ["kv_heads", "query_heads"]
    assert ratio_of(FullKV().compress(state, 80), state).ratio_over == "kv_heads"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_it_decodes_at_the_true_positions_and_twice_the_same(layout, scope):
    model = tiny_model(layout=layout)
    method = at_eviction_ratio(window=8, scope=scope, theta_k=0.9, theta_v=0.8)
    state = prefill(model, prompt(90), method.needs)
    caches = method.compress(state, 40)
    first = generate(model, caches, state.logits, 16, frozenset()).tokens
    assert first == tokens_of(model, state, method, 40, steps=16)
    assert all(cache.get_seq_length() == 90 + 15 for cache in caches)
    assert first[0] == int(state.logits.argmax())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_run(dtype):
    model = tiny_model().to(dtype)
    method = at_eviction_ratio(window=8)
    state = prefill(model, prompt(70), method.needs)
    caches = method.compress(state, 35)
    stored = {t.dtype for cache in caches for t in cache.tensors()}
    assert dtype in stored and torch.float32 not in stored
    assert len(generate(model, caches, state.logits, 10, frozenset()).tokens) == 10


@given(n=st.integers(1, 40), budget=st.integers(9, 45), repeat=st.booleans())
def test_kept_tokens_are_what_the_pyramid_says_at_every_size(n, budget, repeat):
    state = random_state(num_layers=3, n=n, window=min(8, n), rope=ROPE)
    caches = at_eviction_ratio(window=8, repeat=repeat, ratio_over="query_heads").compress(state, budget)
    expected = [n] * 3 if budget >= n else LinearPyramid().tokens(budget, n, 8, 3)
    assert [round(c.kept.r1 * n) for c in caches] == expected == [c.kept.nominal for c in caches]


@pytest.mark.heavy
def test_the_embedded_model_shrinks_most_in_low_layers_and_still_reads(embedded):
    """A needle in varied text, which FullKV finds. (Where one sentence repeats, theta_k = 0.98 loses it.)"""
    sentences = list(islice(generated(seed=5), 30))
    sentences.insert(15, "The code of the vault is 4711. ")
    ids = embedded.encode("".join(sentences) + "\nWhat is the code of the vault?", chat=True)
    method = at_eviction_ratio(evict=False)
    state = prefill(embedded.model, ids, method.needs)
    caches = method.compress(state, state.n)
    r2 = [cache.kept.r2 for cache in caches]
    assert sum(r2[:5]) < sum(r2[-5:])
    assert ratio_of(caches, state).r_bytes < 0.8
    for tried in (caches, FullKV().compress(state, state.n)):
        output = generate(embedded.model, tried, state.logits, 12, embedded.stop_tokens)
        assert "4711" in embedded.decode(output.tokens)


# ------------------------------------------------------------------------------------------- parts


def test_the_parts_of_spindle_make_spindle():
    state = prefill(tiny_model(), prompt(80), at_eviction_ratio(window=8).needs)
    parts = Eviction(LinearPyramid(), WindowAverage(8), "query_head", storage=Codebook(window=8))
    ours, theirs = at_eviction_ratio(window=8).compress(state, 40), parts.compress(state, 40)
    assert ratio_of(ours, state) == ratio_of(theirs, state)
    query = torch.randn(1, 6, 1, 8)
    assert all(a.attend(query, 0.3).equal(b.attend(query, 0.3)) for a, b in zip(ours, theirs, strict=True))


def test_the_yaml_is_the_dataclass_with_its_defaults():
    config = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/method/spindle.yaml"))
    assert build({**config, "scoring": {"_target_": "kvbench.methods.ColumnSums"}}, "method", Method).needs.column_sums
    assert build(config, "method", Method) == SpindleKV()


def test_other_scorers_and_allocations_choose_the_tokens():
    method = at_eviction_ratio(window=8, scoring=ColumnSums(recent=8), allocation=Uniform())
    state = prefill(tiny_model(), prompt(80), method.needs)
    expected = Eviction(Uniform(), ColumnSums(recent=8), "query_head")
    for index, layer in enumerate(state.layers):
        assert method.select(layer, index, 3, 30).indices.equal(expected.select(layer, index, 3, 30).indices)


@pytest.mark.parametrize("method", [FullKV(Codebook()), Eviction(storage=Codebook()), Eviction(storage=Dense())])
def test_methods_that_pay_nothing_per_vector_have_one_ratio(method):
    state = random_state(n=80, window=32, rope=ROPE)
    ratio = ratio_of(method.compress(state, 60), state)
    assert (ratio.r_corrected == ratio.r) == (method == Eviction(storage=Dense()))


def test_the_corrected_ratio_pays_per_vector():
    layers = [Kept(10, 80, 100, r2=0.3, r3=1.01, overhead=2 / 128)]
    ratio = ReserveRatio.from_layers(layers, 1, 4)
    assert ratio.r == pytest.approx(0.8 * 0.3 * 1.01)
    assert ratio.r_corrected == pytest.approx(0.8 * (0.3 + 2 / 128))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"theta_k": 0}, "theta_k=0 "),
        ({"theta_v": 1.2}, "theta_v=1.2 "),
        ({"beta": 1}, "beta=1 "),
        ({"scope": "model"}, "scope"),
        ({"score_norm": "sum"}, "score_norm"),
        ({"window": 0}, "window=0 "),
        ({"control": "close"}, "control"),
        ({"control_on": "r1"}, "control_on"),
        ({"control": "exact", "evict": False}, "evict=false"),
    ],
)
def test_wrong_values_are_refused_by_name(options, message):
    with pytest.raises(UserError, match=message):
        SpindleKV(**options)
