"""SimLayerKV: the lazy score, the decision, the trimmed caches and their composition."""

import hypothesis.strategies as st
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given
from omegaconf import OmegaConf

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods import DecodeCompression, Dense, Eviction, FullKV, SimLayerKV, StreamingLLM, WindowAttention
from kvbench.methods.selection import sinks_and_recent
from kvbench.ops.attention_mass import attention_mass
from kvbench.prefill import Needs, PrefillState, prefill
from tests.support.paths import ROOT
from tests.support.tiny import LAYOUTS, prompt, random_layer, random_state, tiny_model

CONF = str(ROOT / "conf")


def slow_score(layer, sinks, recent, w_last):
    """Eq. 1 read off the whole attention matrix, one query and one key at a time."""
    n, group = layer.n, layer.num_attention_heads // layer.num_key_value_heads
    w_last = min(w_last, n, layer.queries.shape[1])
    chosen = {j for j in range(n) if j < sinks or j >= n - recent}
    total = 0.0
    for head in range(layer.num_attention_heads):
        keys = layer.keys[head // group].double()
        for i in range(n - w_last, n):
            query = layer.queries[head, layer.queries.shape[1] - (n - i)].double()
            weights = (keys[: i + 1] @ query * layer.scaling).softmax(0)
            total += sum(weights[j].item() for j in chosen if j <= i)
    return total / (layer.num_attention_heads * w_last)


def store_bytes(caches):
    return sum(cache.nbytes for cache in caches)


@given(
    n=st.integers(1, 40),
    layout=st.sampled_from(list(LAYOUTS.values())),
    sinks=st.integers(0, 5),
    window=st.integers(1, 12),
    w_last=st.integers(1, 12),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_log_sum_exp_score_equals_the_dense_score(n, layout, sinks, window, w_last, dtype):
    layer = random_layer(*layout, n=n, window=12, dtype=dtype)
    score = SimLayerKV(sinks=sinks, window=window, w_last=w_last).score(layer).item()
    assert 0 <= score <= 1
    assert score == pytest.approx(slow_score(layer, sinks, window, w_last), abs=1e-5)


def test_large_float16_logits_keep_the_score_finite_and_at_most_one():
    layer = random_layer(n=30, dtype=torch.float16)
    layer.keys.mul_(200)
    layer.queries.mul_(200)
    for window in (1, 5, 30):
        assert 0 <= SimLayerKV(window=window).score(layer).item() <= 1


def test_score_does_not_depend_on_what_else_the_run_observed():
    wide, narrow = random_layer(window=20), random_layer(window=6)
    method = SimLayerKV(sinks=2, window=5, w_last=6)
    assert torch.equal(method.score(wide), method.score(narrow))


def test_rounding_never_takes_a_score_above_one():
    """All weight lies in X, but the two log-sum-exps run over different keys; delta=1 must still trim nothing."""
    scores, raw = [], []
    for seed in range(30):
        layer = random_layer(n=300, window=4, seed=seed)
        layer.queries[:] = torch.eye(8)[0] * 40
        layer.keys[:, :, 0] = torch.rand(2, 300)
        layer.keys[:, 4:7, 0] = -8
        scores.append(SimLayerKV(window=293, w_last=4).score(layer).item())
        chosen = sinks_and_recent(300, 4, 293, layer.keys.device)[0]
        raw.append(attention_mass(layer.queries, layer.keys, layer.scaling, chosen).mean().item())
    assert max(raw) > 1  # the case exists
    assert max(scores) == 1 and not any(SimLayerKV(delta=1).lazy(scores))


def test_lazy_is_strictly_above_delta():
    assert SimLayerKV(delta=0.5).lazy([0.5, 0.50001, 0.4]) == [False, True, False]


@given(n=st.integers(1, 60), low=st.floats(0, 1), high=st.floats(0, 1))
def test_lazy_layers_shrink_as_delta_grows(n, low, high):
    low, high = sorted((low, high))
    layers = random_state(5, n=n).layers

    def lazy(delta):
        method = SimLayerKV(delta=delta, sinks=2, window=6)
        return {i for i, x in enumerate(method.lazy([method.score(layer).item() for layer in layers])) if x}

    assert lazy(high) <= lazy(low)


@pytest.mark.parametrize("n", [1, 3, 4, 11, 12, 13, 50])
def test_delta_one_is_full_kv(n):
    state = random_state(n=n)
    for variant in ("prefill", "decode"):
        caches = SimLayerKV(variant, delta=1, sinks=4, window=8).compress(state, 0)
        full = FullKV().compress(state, n)
        assert store_bytes(caches) == store_bytes(full) == state.nbytes
        step = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8), torch.randn(1, 6, 1, 8)
        for ours, theirs in zip(caches, full, strict=True):
            for _ in range(3):
                ours.update(*step[:2])
                theirs.update(*step[:2])
                assert torch.equal(ours.attend(step[2], 0.3), theirs.attend(step[2], 0.3))
            assert ours.kept.r1 == 1 and ours.get_seq_length() == n + 3


@pytest.mark.parametrize("n", [1, 4, 5, 11, 12, 13, 14, 50])
def test_delta_zero_is_streaming_llm(n):
    state = random_state(n=n)
    caches = SimLayerKV(delta=0, sinks=4, window=8).compress(state, 0)
    for ours, theirs in zip(caches, StreamingLLM(sinks=4).compress(state, 12), strict=True):
        assert torch.equal(ours.k.view, theirs.k.view) and torch.equal(ours.v.view, theirs.v.view)
        assert (ours.nbytes, ours.kept.r1) == (theirs.nbytes, theirs.kept.r1)


@given(
    n=st.integers(1, 40),
    layout=st.sampled_from(list(LAYOUTS.values())),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    delta=st.floats(0, 1),
)
def test_bytes_are_the_analytic_ones_and_the_state_is_left_alone(n, layout, dtype, delta):
    state = random_state(3, heads=layout[0], kv_heads=layout[1], n=n, dtype=dtype)
    before = [layer.keys.clone() for layer in state.layers]
    method = SimLayerKV(delta=delta, sinks=3, window=5)
    caches = method.compress(state, 0)
    for layer, cache in zip(state.layers, caches, strict=True):
        kept = min(n, 8) if method.score(layer).item() > delta else n
        assert cache.nbytes == 2 * layout[1] * kept * 8 * dtype.itemsize
        assert cache.kept.r1 == kept / n
    for layer, keys in zip(state.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)


def test_half_of_the_layers_lazy_at_8192_tokens_reserve_5627():
    """Section 7.2 of the reference: .5 + .5 * 1028 / 8192."""
    state = PrefillState([random_layer(1, 1, 8192, 2, seed=i, observed=False) for i in range(4)], torch.zeros(97))
    scores = sorted(SimLayerKV().score(layer).item() for layer in state.layers)
    method = SimLayerKV(delta=(scores[1] + scores[2]) / 2)
    caches = method.compress(state, 0)
    ratio = ReserveRatio.from_layers([cache.kept for cache in caches], store_bytes(caches), state.nbytes)
    assert ratio.r == ratio.r_bytes == 0.5 + 0.5 * 1028 / 8192
    assert round(ratio.r, 4) == 0.5627


@given(
    n=st.integers(1, 40),
    budget=st.integers(1, 45),
    variant=st.sampled_from(["prefill", "decode"]),
    window=st.integers(1, 12),
)
def test_without_delta_the_fewest_laziest_layers_meet_the_budget(n, budget, variant, window):
    method = SimLayerKV(variant, delta=None, sinks=2, window=window)
    scores = [0.2, 0.9, 0.5, 0.9, 0.1]
    lazy = method.lazy(scores, n, budget)
    short = min(n, 2 + method.recent)

    def mean_kept(count):
        return (count * short + (5 - count) * n) / 5

    assert [i for i in (1, 3, 2, 0, 4) if lazy[i]] == [1, 3, 2, 0, 4][: sum(lazy)]  # ties: the lower layer first
    assert mean_kept(sum(lazy)) <= budget or sum(lazy) == 5 or short == n
    assert sum(lazy) == 0 or mean_kept(sum(lazy) - 1) > budget


@pytest.mark.parametrize("variant", ["prefill", "decode"])
def test_asked_ratio_is_met_on_a_model_and_says_so_where_it_cannot_be(variant):
    model = tiny_model(num_layers=5)
    state = prefill(model, prompt(60), Needs(window=32))
    for budget, expected in ((60, 60), (59, 50), (40, 40), (12, 10), (3, 10)):
        method = SimLayerKV(variant, delta=None, sinks=2, window=8 if variant == "prefill" else 9)
        caches = method.compress(state, budget)
        generate(model, caches, state.logits, 3, frozenset())
        kept = sum(round(cache.kept.r1 * 60) for cache in caches) / 5
        assert kept == expected
        assert method.takes_budget and method.minimum_budget == 1


@pytest.mark.parametrize("granularity, layout", [("kv_head", "unfolded"), ("query_head", "union")])
def test_layers_that_are_not_lazy_are_evicted_by_snapkv(granularity, layout):
    state = random_state(4, n=60, window=8)
    storage = Dense(layout)
    snapkv = Eviction(scoring=WindowAttention(window=4), granularity=granularity, storage=storage)
    settings = {"sinks": 2, "window": 6, "others": snapkv, "storage": storage, "w_last": 8}
    pure, lazy = SimLayerKV(delta=1, **settings), SimLayerKV(delta=0, **settings)
    for ours, theirs in zip(pure.compress(state, 20), snapkv.compress(state, 20), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours.tensors(), theirs.tensors(), strict=True))
    for ours, theirs in zip(lazy.compress(state, 20), StreamingLLM(sinks=2).compress(state, 8), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours.tensors(), theirs.tensors(), strict=True))
    scores = sorted(pure.score(layer).item() for layer in state.layers)
    mixed = SimLayerKV(delta=scores[1], **settings).compress(state, 20)
    assert sorted(round(cache.kept.r1 * 60) for cache in mixed) == [8, 8, 20, 20]
    assert pure.takes_budget and pure.minimum_budget == 5
    assert pure.needs == Needs(window=8)


@pytest.mark.parametrize("variant", ["prefill", "decode"])
def test_end_to_end_tokens_differ_from_full_kv_only_after_the_full_cache_tokens(variant):
    model = tiny_model()
    method = SimLayerKV(variant, delta=0, sinks=2, window=6)
    state = prefill(model, prompt(60), method.needs)
    full = generate(model, FullKV().compress(state, 60), state.logits, 30, frozenset()).tokens
    runs = [generate(model, method.compress(state, 0), state.logits, 30, frozenset()).tokens for _ in range(2)]
    assert runs[0] == runs[1] != full
    assert runs[0][: method.full_cache_tokens] == full[: method.full_cache_tokens]


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"variant": "decoding"}, "decode"),
        ({"delta": 1.5}, "delta=1.5"),
        ({"delta": True}, "delta=True"),
        ({"window": 0}, "window=0"),
        ({"sinks": -1}, "sinks=-1"),
        ({"w_last": 0}, "w_last=0"),
        ({"others": StreamingLLM()}, "StreamingLLM"),
        ({"others": Eviction(), "variant": "decode"}, "variant=prefill"),
        ({"others": Eviction(), "delta": None}, "delta=null"),
        ({"include_current": False}, "variant=decode"),
    ],
)
def test_meaningless_choices_are_refused_in_one_line(arguments, word):
    with pytest.raises(UserError, match=word) as error:
        SimLayerKV(**arguments)
    assert "\n" not in str(error.value)


def test_a_ratio_counts_the_tokens_that_it_counts_for_the_eviction_of_the_other_layers():
    method = SimLayerKV(others=Eviction(decode_compression=DecodeCompression(of="total", prompt="whole")))
    assert Setting("both", method, "{}", ratio=0.5).requested_tokens(n := 100, new_tokens=300) == (n + 300) / 2
    assert method.compress_at == "while_decoding"


def test_one_layer_alone_cannot_be_ranked():
    with pytest.raises(UserError, match="delta=null"):
        SimLayerKV(delta=None).compress_layer(random_layer(), 0, 3, 10)


@pytest.mark.parametrize(
    "model, delta", [("llama2-7b-chat", 0.65), ("llama3-8b", 0.9), ("mistral-7b-v0.3", 0.8), ("qwen2.5-3b", 0.85)]
)
def test_yaml_takes_the_published_threshold_of_the_model(model, delta):
    names = ["simlayerkv", "simlayerkv_decode", "simlayerkv_snapkv", "simlayerkv_paper"]
    with initialize_config_dir(CONF, version_base="1.3"):
        config = compose("config", overrides=[f"method=[{','.join(names)}]", f"model={model}"])
    config = OmegaConf.to_container(config, resolve=True)
    settings = build_settings(config["method"], None, [768])
    assert {setting.method.delta for setting in settings} == {delta} and len(settings) == 4
    assert [setting.label for setting in settings if setting.method.takes_budget] == ["simlayerkv_snapkv 768"]
    assert {setting.method.variant for setting in settings[1::2]} >= {"decode"}
