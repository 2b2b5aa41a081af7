"""SimLayerKV's decode variant: FullKV for two tokens, then trimmed layers; and what records say of it."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Cache

from kvbench.benchmarks import Sample
from kvbench.evaluation.answer import answer
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Row, Run, record
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Dense, FullKV, SimLayerKV
from kvbench.methods.simlayerkv.method import FirstDecodeDecision, FirstDecodeLayer
from kvbench.models.cache_argument import as_argument
from kvbench.prefill import FullPrefill, Needs, prefill
from tests.support.config import method
from tests.support.tiny import LAYOUTS, prompt, random_state, tiny_model


def decode_steps(model, caches, tokens):
    """Feed `tokens` one by one; the logits of every step."""
    cache = Cache(layers=list(caches))
    with torch.inference_mode():
        return torch.cat([model(input_ids=t.view(1, 1), **as_argument(model, cache)).logits[0] for t in tokens])


def decoding_scores(model, method, ids, token):
    """The score of every layer for `token` after the prompt `ids`; nothing is trimmed."""
    reported = []

    def keep_all(scores):
        reported.extend(scores)
        return [lambda layer: FullKV().compress_layer(layer, 0, 1, 0)] * len(scores)

    layers = prefill(model, ids, Needs()).layers
    decision = FirstDecodeDecision(len(layers), method.decoding_score, keep_all)
    decode_steps(model, [FirstDecodeLayer(layer, decision) for layer in layers], token)
    return reported


def test_prefill_score_with_one_query_equals_the_decode_score_at_the_last_prompt_token():
    model, ids = tiny_model(), prompt(50)
    whole = prefill(model, ids, Needs(window=1))
    expected = [SimLayerKV(sinks=2, window=6, w_last=1).score(layer).item() for layer in whole.layers]
    scores = decoding_scores(model, SimLayerKV("decode", sinks=2, window=6), ids[:-1], ids[-1:])
    assert scores == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("include_current", [True, False])
def test_decode_variant_trims_after_the_first_decoded_token(layout, include_current):
    """Two tokens with the full cache; then every layer holds sinks, recent prompt tokens and what follows."""
    model, steps = tiny_model(layout=layout), prompt(5, seed=1)
    state = prefill(model, prompt(40), Needs())
    method = SimLayerKV("decode", delta=0, sinks=2, window=6, include_current=include_current)
    caches, full = method.compress(state, 0), FullKV().compress(state, 40)
    assert (method.compress_at, method.full_cache_tokens) == ("first_decode", 2)
    assert sum(cache.nbytes for cache in caches) == state.nbytes
    assert all(cache.late_bytes is None for cache in caches)

    first, reference = decode_steps(model, caches, steps[:1]), decode_steps(model, full, steps[:1])
    assert torch.equal(first, reference)
    kept = 2 + (5 if include_current else 6)
    for cache, other in zip(caches, full, strict=True):
        inner = cache.inner.k.view
        chosen = [0, 1, *range(40 - kept + 2, 41)]
        assert torch.equal(inner, other.k.view[:, :, chosen])
        assert cache.kept.r1 == kept / 40
        assert cache.late_bytes == state.nbytes / 3 * kept / 40
        assert cache.decision is None
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
    model, token = tiny_model(layout=layout, num_layers=4), prompt(1, seed=1)
    state = prefill(model, prompt(40), Needs())
    scores = decoding_scores(model, SimLayerKV("decode", sinks=2, window=6), prompt(40), token)
    delta = sum(sorted(scores)[1:3]) / 2
    caches = SimLayerKV("decode", delta=delta, sinks=2, window=6).compress(state, 0)
    decode_steps(model, caches, token)
    assert [cache.kept.r1 < 1 for cache in caches] == [score > delta for score in scores]
    # a layer that is not lazy holds its prompt without slack in the books
    assert {cache.late_bytes for cache in caches if cache.kept.r1 == 1} == {state.nbytes / 4}


@pytest.mark.parametrize("include_current", [True, False])
def test_the_score_counts_a_window_of_keys_with_the_current_token_among_them(include_current):
    """SimLayerKV's 4-bit code keeps 1024 prompt tokens beside the current one, and yet scores the last 1024 keys."""
    method = SimLayerKV("decode", sinks=2, window=6, include_current=include_current)
    queries, keys = torch.randn(4, 1, 8), torch.randn(2, 30, 8)
    weights = (queries.unflatten(0, (2, 2)) @ keys[:, None].mT * 0.35).softmax(-1)  # [kv heads, group, 1, keys]
    expected = (weights[..., :2].sum(-1) + weights[..., -6:].sum(-1)).mean()
    torch.testing.assert_close(method.decoding_score(queries, keys, 0.35), expected)


def test_the_papers_streaming_llm_cuts_every_layer_at_the_first_decoded_token():
    model, n = tiny_model(num_layers=2), 1100
    state = prefill(model, prompt(n), Needs())
    caches = method("simlayerkv_paper_streaming_llm").compress(state, 0)
    decode_steps(model, caches, prompt(1, seed=1))
    kept = [*range(4), *range(n - 1023, n)]
    for cache, layer in zip(caches, state.layers, strict=True):
        assert torch.equal(cache.inner.k.view[0, :, :-1], layer.keys[:, kept])
        assert cache.inner.k.length == 4 + 1024  # with the decoded token


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
    benchmark = SimpleNamespace(name="none", scores=lambda sample, prediction: {})
    return Run("run", "identity", loaded, benchmark, [])


@pytest.mark.parametrize("steps, kept", [(1, 40), (2, 7), (90, 7)])
def test_records_tell_what_the_decode_variant_stored_of_the_prompt(steps, kept):
    model = tiny_model()
    config = {"_target_": "kvbench.methods.SimLayerKV", "variant": "decode", "delta": 0, "sinks": 2, "window": 6}
    setting = build_settings({"lazy": config}, None, None)[0]
    sample = Sample("s", "", (), steps)
    compressed = SharedPass(model, prompt(40), FullPrefill(), setting.method.needs).compress(setting.method, 0)
    question = Prompt(sample, prompt(40), prompt(0))
    row = Row(setting, question, compressed, compressed.caches)
    (answered,) = answer(fake_run(model), question, [row])
    made = record(fake_run(model), question, row, answered)
    assert made["r"] == pytest.approx(kept / 40) and made["r_bytes"] == kept / 40
    assert made["stored_bytes"] == made["full_bytes"] * kept / 40
    assert made["kept_per_layer"] == [kept] * 3
    assert (made["compress_at"], made["full_cache_tokens"]) == ("first_decode", 2)


class Spy(Dense):
    """Dense storage that remembers what it was asked to hold."""

    def store(self, layer, selection):
        self.asked = [*getattr(self, "asked", []), (layer, selection)]
        return super().store(layer, selection)


@pytest.mark.parametrize("delta", [0, 1])
def test_any_storage_holds_the_prompt_alone_once_after_the_decision(delta):
    """What quantisation sees is the trimmed prompt, one contiguous sequence; the decoded token comes after."""
    model, storage, others = tiny_model(), Spy(), Spy()
    state = prefill(model, prompt(40), Needs())
    method = SimLayerKV("decode", delta=delta, sinks=2, window=6, others=FullKV(others), storage=storage)
    caches = method.compress(state, 0)
    assert not hasattr(storage, "asked") and not hasattr(others, "asked")
    decode_steps(model, caches, prompt(3, seed=1))
    asked = (storage if delta == 0 else others).asked
    assert len(asked) == 3
    for (layer, selection), original in zip(asked, state.layers, strict=True):
        assert torch.equal(layer.keys, original.keys) and torch.equal(layer.values, original.values)
        assert (layer.scaling, layer.num_attention_heads, layer.rope) == (
            original.scaling,
            original.num_attention_heads,
            original.rope,
        )
        assert selection.count(layer) == (7 if delta == 0 else 40)
    assert {cache.inner.get_seq_length() for cache in caches} == {43}
