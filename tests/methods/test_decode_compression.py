"""Compression while decoding: what it changes and what it does not, its schedule, its bytes and its settings."""

import json
from functools import cache

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, decode, generate
from kvbench.evaluation.settings import build_settings
from kvbench.methods import (
    H2O,
    RKV,
    TOVA,
    ColumnSums,
    CompositeHeads,
    DecodeCompression,
    Eviction,
    ExpectedAttention,
    FullKV,
    KeyDiff,
    Kivi,
    KNorm,
    LastQuery,
    Random,
    StreamingLLM,
    WindowAttention,
    WindowAverage,
)
from kvbench.prefill import Needs, prefill
from tests.support import launch_counts
from tests.support.answers import agree
from tests.support.config import method_configs
from tests.support.tiny import prompt, tiny_model

N, B, T = 50, 30, 34
SCORINGS = [
    RKV(),
    WindowAttention(window=8),
    WindowAverage(window=4),
    LastQuery(),
    ColumnSums(recent=8),
    KNorm(),
    KeyDiff(),
    Random(),
]


def evicting(scoring, every=8, **options) -> Eviction:
    return Eviction(scoring=scoring, decode_compression=DecodeCompression(every=every, **options))


def sliding(every=8, **options) -> StreamingLLM:
    return StreamingLLM(decode_compression=DecodeCompression(every=every, **options))


METHODS = {type(scoring).__name__: evicting(scoring) for scoring in SCORINGS} | {
    "StreamingLLM": sliding(),
    "whole": evicting(RKV(), prompt="whole", counts="seen", slots="score"),
    "layer": Eviction(scoring=LastQuery(), granularity="layer", decode_compression=DecodeCompression(every=8)),
    "query_head": Eviction(
        scoring=WindowAttention(window=8), granularity="query_head", decode_compression=DecodeCompression(every=8)
    ),
}


@pytest.fixture(scope="module", params=[torch.float64, torch.bfloat16], ids=str)
def either(request):
    """A model in one of two dtypes, a prompt's state, and FullKV's tokens."""
    model = tiny_model(num_layers=2).to(request.param)
    state = prefill(model, prompt(N), Needs(window=32, column_sums=True))
    return model, state, decoded(state, FullKV(), N, model=model)[0].tokens


@cache
def small():
    """In float64: keys of one token have equal norms at all positions, ties that rounding would break in float32."""
    return tiny_model(num_layers=2).double()


@pytest.fixture(scope="module")
def state():
    return prefill(small(), prompt(N), Needs(window=32, column_sums=True))


def decoded(state, method, budget, steps=T, model=None):
    caches = method.compress(state, budget)
    return generate(model or small(), caches, state.logits, steps, frozenset()), caches


@pytest.mark.parametrize("name", METHODS)
def test_a_budget_beyond_prompt_and_answer_changes_nothing(name, either):
    model, state, full = either
    assert agree(decoded(state, METHODS[name], N + T, model=model)[0], full)


@pytest.mark.parametrize(
    "method, every_token, more",
    [
        (TOVA(decode_compression=DecodeCompression(every=1)), TOVA(decode="evict"), 0),
        (
            H2O(scoring=ColumnSums(recent=8), decode_compression=DecodeCompression(every=1)),
            H2O(scoring=ColumnSums(recent=8), decode="update"),
            0,
        ),
        # a sliding window overwrites its oldest token before the new one attends
        (sliding(every=1), StreamingLLM(decode="evict"), 1),
    ],
    ids=["TOVA", "H2O", "StreamingLLM"],
)
def test_a_reduction_at_every_pass_is_the_methods_own_eviction(method, every_token, more, state):
    one, caches = decoded(state, method, B)
    other, theirs = decoded(state, every_token, B + more)
    assert one.tokens == other.tokens
    assert [cache.k.length for cache in caches] == [B] * 2
    assert [cache.k.length for cache in theirs] == [B + 1] * 2


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_decodes_as_each_alone(name, state):
    method = METHODS[name]
    alone, _ = decoded(state, method, B)
    other, _ = decoded(state, FullKV(), N)
    every = [FullKV().compress(state, N), method.compress(state, B), method.compress(state, B)]
    cache = batched(every)
    outputs = decode(small(), cache, state.logits.expand(3, -1), T, frozenset())
    assert [output.tokens for output in outputs] == [other.tokens, alone.tokens, alone.tokens]
    assert [output.decode_bytes for output in outputs] == [other.decode_bytes, alone.decode_bytes, alone.decode_bytes]


def lengths(when, prompt_length, passes=T):
    """Tokens per head held by each pass."""
    held, found = prompt_length, []
    for seen in range(N + 1, N + passes + 1):
        held += 1
        found.append(held)
        if when.due(seen, N) and held > B:
            held = B
    return found


@pytest.mark.parametrize("counts", ["decoded", "seen"])
@pytest.mark.parametrize("prompt_is, first", [("cut", B), ("whole", N)])
def test_bytes_are_a_saw_tooth_between_budget_and_budget_plus_interval(counts, prompt_is, first, state):
    when = DecodeCompression(every=8, prompt=prompt_is, counts=counts)
    output, _ = decoded(state, Eviction(scoring=KNorm(), decode_compression=when), B, T + 1)
    token = state.nbytes // N
    expected = lengths(when, first)
    assert output.decode_bytes.held == token * sum(expected) and output.decode_bytes.peak == token * max(expected)
    if prompt_is == "cut" and counts == "decoded":
        teeth = T // 8 * 8
        assert sum(expected[:teeth]) / teeth == B + (8 + 1) / 2 and max(expected) == B + 8
    else:
        assert expected[0] == first + 1


@pytest.mark.parametrize(
    ("prompt_length", "reducing"),
    [(200, [257, 385, 513]), (255, [257, 385, 513]), (256, [257, 385, 513]), (257, [385, 513])],
)
def test_counting_the_text_reduces_in_the_pass_after_a_multiple_as_rkvs_code_does(prompt_length, reducing):
    """The lengths of the text with the token of a pass that reduces, as R-KV's own forward function flags them."""
    when = DecodeCompression(every=128, counts="seen")
    assert [seen for seen in range(prompt_length + 1, 514) if when.due(seen, prompt_length)] == reducing


def test_the_ring_of_queries_counts_as_held(state):
    """R-KV: 8 queries of 6 heads of 8 float64 channels in each of 2 layers."""
    with_ring, _ = decoded(state, evicting(RKV()), B)
    without, _ = decoded(state, evicting(KNorm()), B)
    assert with_ring.decode_bytes.held - without.decode_bytes.held == 2 * 8 * 6 * 8 * 8 * with_ring.decode_bytes.passes


def test_a_growing_budget_is_a_share_of_the_tokens_seen(state):
    method = evicting(KNorm(), every=10, of="seen", prompt="whole")
    (setting,) = build_settings({"a": {"_target_": "kvbench.methods.FullKV"}}, None, None)
    assert method.takes_fractions and method.ratio_of == "seen" and setting.method.ratio_of == "prompt"
    _, caches = decoded(state, method, 0.5 * N, steps=31)
    assert [cache.k.length for cache in caches] == [int(0.5 * (N + 30))] * 2


def config(**changes) -> dict:
    return {"rkv": method_configs("rkv")["rkv"] | changes}


def test_a_ratio_of_total_counts_the_answer_and_says_so():
    node = method_configs("rkv")["rkv"]["decode_compression"] | {"of": "total"}
    (setting,) = build_settings(config(decode_compression=node), 0.25, None)
    assert setting.label == "rkv 0.25 of total" and setting.budget_at(100, 3, new_tokens=60) == 40
    assert build_settings(config(), 0.25, None)[0].budget_at(100, 3, new_tokens=60) == 25


def test_decode_compress_gives_every_method_a_schedule_and_its_key_only_then():
    methods = method_configs("full", "snapkv", "streaming_llm", "rkv")
    plain = build_settings(methods, 0.2, None)
    with_it = build_settings(methods, 0.2, None, {"every": 64, "budget": 40})
    assert [one.label for one in plain] == [one.label for one in with_it]
    changed = [one.name for one, other in zip(plain, with_it, strict=True) if one.key != other.key]
    assert changed == ["snapkv", "streaming_llm"]
    node = json.loads(with_it[1].parameters)["decode_compression"]
    assert node == {"_target_": "kvbench.methods.DecodeCompression", "every": 64, "budget": 40}
    assert "decode_compression" not in json.loads(plain[1].parameters)
    with pytest.raises(UserError, match="method 'kivi2' does not compress while decoding"):
        build_settings({"kivi2": {"_target_": "kvbench.methods.LagKV"}}, 0.2, None, {"every": 64})


REFUSED = {
    "dense, unfolded storage, not Kivi": lambda: Eviction(storage=Kivi(), decode_compression=DecodeCompression()),
    "ExpectedAttention reads what only the prefill": lambda: evicting(ExpectedAttention()),
    # which gives all heads of a layer the same number of tokens
    "CompositeHeads makes budgets of heads from a whole prompt": lambda: Eviction(
        scoring=KNorm(), heads=CompositeHeads(), decode_compression=DecodeCompression()
    ),
    "ColumnSums reads what only the prefill": lambda: evicting(ColumnSums(score="mean")),
    "budget=20 is too small for WindowAttention: at least 33": lambda: evicting(WindowAttention(), budget=20),
    "drops a token at every step: leave decode_compression out": lambda: TOVA(
        decode="evict", decode_compression=DecodeCompression()
    ),
    "evicts a token at every step: leave": lambda: H2O(decode="update", decode_compression=DecodeCompression()),
    "needs decode=grow": lambda: StreamingLLM(decode="evict", decode_compression=DecodeCompression()),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_drop_tokens_while_decoding_is_refused(message):
    with pytest.raises(UserError, match=message):
        REFUSED[message]()


@pytest.mark.parametrize("scoring", [RKV(), ColumnSums(recent=8), KNorm()], ids=lambda one: type(one).__name__)
def test_reductions_do_not_wait_for_the_device(scoring):
    _, mean = launch_counts.decoding_per_layer(80, lambda layers: [(evicting(scoring, every=2), 40)])
    assert mean.waits == 0, mean.names
