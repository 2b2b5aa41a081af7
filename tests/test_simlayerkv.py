"""SimLayerKV: the lazy score, the decision, the trimmed caches, and the decode variant's late accounting."""

from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given
from omegaconf import OmegaConf
from transformers import Cache

from kvbench.attention import attention_mass
from kvbench.decode import generate
from kvbench.errors import UserError
from kvbench.methods import Dense, Eviction, FullKV, SimLayerKV, StreamingLLM, WindowAttention
from kvbench.methods.selection import sinks_and_recent
from kvbench.prefill import Needs, PrefillState, prefill
from kvbench.ratio import ReserveRatio
from kvbench.runner import measure
from kvbench.settings import build_settings
from tests.tiny import LAYOUTS, prompt, random_layer, random_state, tiny_model

CONF = str(Path(__file__).parents[1] / "conf")


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


def decode_steps(model, caches, tokens):
    """Feed `tokens` one by one; the logits of every step."""
    cache = Cache(layers=list(caches))
    with torch.inference_mode():
        return torch.cat([model(input_ids=t.view(1, 1), past_key_values=cache).logits[0] for t in tokens])


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
    state = PrefillState([random_layer(1, 1, 8192, 2, seed=i) for i in range(4)], torch.zeros(97))
    scores = sorted(SimLayerKV().score(layer).item() for layer in state.layers)
    method = SimLayerKV(delta=(scores[1] + scores[2]) / 2)
    caches = method.compress(state, 0)
    ratio = ReserveRatio.of([cache.kept for cache in caches], store_bytes(caches), state.nbytes)
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


def test_prefill_score_with_one_query_equals_the_decode_score_at_the_last_prompt_token():
    model, ids = tiny_model(), prompt(50)
    whole = prefill(model, ids, Needs(window=1))
    expected = [SimLayerKV(sinks=2, window=6, w_last=1).score(layer).item() for layer in whole.layers]
    method = SimLayerKV("decode", sinks=2, window=6)
    heard = []

    def decoding_score(*args):
        heard.append(SimLayerKV.decoding_score(method, *args).item())
        return torch.tensor(heard[-1])

    method.decoding_score = decoding_score
    decode_steps(model, method.compress(prefill(model, ids[:-1], Needs()), 0), ids[-1:])
    assert heard == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("include_current", [True, False])
def test_decode_variant_trims_after_the_first_decoded_token(layout, include_current):
    """Two tokens with the full cache; then every layer holds sinks, recent prompt tokens and what follows."""
    model, steps = tiny_model(layout=layout), prompt(5, seed=1)
    state = prefill(model, prompt(40), Needs())
    method = SimLayerKV("decode", delta=0, sinks=2, window=6, include_current=include_current)
    caches, full = method.compress(state, 0), FullKV().compress(state, 40)
    assert (method.compress_at, method.full_cache_tokens) == ("first_decode", 2)
    assert store_bytes(caches) == state.nbytes and all(cache.late_bytes is None for cache in caches)

    first, reference = decode_steps(model, caches, steps[:1]), decode_steps(model, full, steps[:1])
    assert torch.equal(first, reference)
    kept = 2 + (5 if include_current else 6)
    for cache, other in zip(caches, full, strict=True):
        inner = cache.inner.k.view
        chosen = [0, 1, *range(40 - kept + 2, 41)]
        assert torch.equal(inner, other.k.view[:, :, chosen])
        assert cache.kept.r1 == kept / 40
        assert cache.late_bytes == state.nbytes / 3 * kept / 40
        assert cache.verdict is None
    assert not torch.equal(decode_steps(model, caches, steps[1:2]), decode_steps(model, full, steps[1:2]))
    decode_steps(model, caches, steps[2:])
    assert {cache.inner.k.length for cache in caches} == {kept + 5}  # it grows afterwards
    assert {cache.get_seq_length() for cache in caches} == {45}


def test_decode_variant_attends_like_a_full_cache_with_the_trimmed_keys_hidden():
    state = random_state(1, n=30)
    cache = SimLayerKV("decode", delta=0, sinks=2, window=6).compress(state, 0)[0]
    full = FullKV().compress(state, 30)[0]
    for _ in range(3):
        key, value, query = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8), torch.randn(1, 6, 1, 8)
        cache.update(key, value)
        full.update(key, value)
        out = cache.attend(query, 0.35)
    hidden = (torch.arange(33) >= 2) & (torch.arange(33) < 25)
    logits = query.unflatten(1, (2, 3)) @ full.k.view[:, :, None].mT * 0.35
    weights = logits.masked_fill(hidden, float("-inf")).softmax(-1)
    torch.testing.assert_close(out, (weights @ full.v.view[:, :, None]).flatten(1, 2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_decode_variant_decides_layer_by_layer_with_delta(layout):
    model = tiny_model(layout=layout, num_layers=4)
    state = prefill(model, prompt(40), Needs())
    heard = {}
    probe = SimLayerKV("decode", delta=0, sinks=2, window=6)
    score = probe.decoding_score
    probe.decoding_score = lambda *args: heard.setdefault(len(heard), score(*args))
    token = prompt(1, seed=1)
    decode_steps(model, probe.compress(state, 0), token)
    scores = sorted(s.item() for s in heard.values())
    delta = (scores[1] + scores[2]) / 2
    caches = SimLayerKV("decode", delta=delta, sinks=2, window=6).compress(state, 0)
    decode_steps(model, caches, token)
    assert [cache.kept.r1 < 1 for cache in caches] == [s.item() > delta for s in heard.values()]
    # a layer that is not lazy holds its prompt without slack in the books
    assert {c.late_bytes for c in caches if c.kept.r1 == 1} == {state.nbytes / 4}


@pytest.mark.parametrize("n", [1, 5, 7, 8, 9, 10])
@pytest.mark.parametrize("include_current", [True, False])
def test_short_prompts_are_kept_whole_and_nothing_twice(n, include_current):
    """With n <= s + w a lazy layer trims nothing: the overlap of sinks and window is one set."""
    model, steps = tiny_model(), prompt(4, seed=1)
    state = prefill(model, prompt(n), Needs())
    method = SimLayerKV("decode", delta=0, sinks=2, window=8, include_current=include_current)
    caches, full = method.compress(state, 0), FullKV().compress(state, n)
    logits, reference = decode_steps(model, caches, steps), decode_steps(model, full, steps)
    kept = min(n, 9 if include_current else 10)
    assert {cache.inner.k.length for cache in caches} == {kept + 4}
    if kept == n:
        assert torch.equal(logits, reference)


def fake_run(model):
    loaded = SimpleNamespace(
        model=model, stop_tokens=frozenset(), decode=str, spec=SimpleNamespace(name="tiny", max_length=512)
    )
    benchmark = SimpleNamespace(name="none", score=lambda sample, prediction: {})
    return SimpleNamespace(id="run", loaded=loaded, benchmark=benchmark, key=lambda sample, setting: "key")


@pytest.mark.parametrize("steps, kept", [(1, 40), (2, 7), (90, 7)])
def test_records_tell_what_the_decode_variant_stored_of_the_prompt(steps, kept):
    model = tiny_model()
    config = {"_target_": "kvbench.methods.SimLayerKV", "variant": "decode", "delta": 0, "sinks": 2, "window": 6}
    setting = build_settings({"lazy": config}, None, None)[0]
    sample = SimpleNamespace(id="s", max_new_tokens=steps, meta={}, answers=[])
    record = measure(fake_run(model), sample, setting, prefill(model, prompt(40), setting.method.needs))
    assert record["r"] == pytest.approx(kept / 40) and record["r_bytes"] == kept / 40
    assert record["stored_bytes"] == record["full_bytes"] * kept / 40
    assert record["kept_per_layer"] == [kept] * 3
    assert (record["compress_at"], record["full_cache_tokens"]) == ("first_decode", 2)


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
