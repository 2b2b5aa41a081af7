"""DuoAttention: which heads stream, what they hold, and that all read as one cache."""

import json

import pytest
import torch
from torch.testing import assert_close

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import DuoAttention, FullKV, StreamingLLM
from kvbench.prefill import Needs, prefill
from tests.support import launch_counts
from tests.support.config import SCORES
from tests.support.tiny import prompt, random_state, tiny_model

GATES = [[0.9, 1.7], [1.0, -0.2], [0.0, 1.0], [0.3, 0.3]]


@pytest.fixture
def gates(tmp_path):
    file = tmp_path / "gates.json"
    file.write_text(json.dumps({"kind": "head scores", "over": "kv_heads", "scores": GATES, "model": "", "about": ""}))
    return str(file)


def streaming(method, n=100, budget=100):
    return method.streaming(random_state(4, n=n).layers[0], budget)


def test_heads_stream_in_the_order_of_their_gates(gates):
    """Clipped to [0, 1], so that 1.7 and 1 are equal; of equals the upper layer and head stream first."""
    order = [(2, 0), (1, 1), (3, 1), (3, 0), (0, 0), (2, 1), (1, 0), (0, 1)]
    assert streaming(DuoAttention(gates, 1.0, 4, 8)) == order
    for sparsity, count in ((0.0, 0), (0.5, 4), (0.75, 6), (0.99, 7), (1.0, 8)):  # of a quantile among eight
        assert streaming(DuoAttention(gates, sparsity, 4, 8)) == order[:count]
    assert streaming(DuoAttention(gates, 0.5, 4, 8), n=12) == order[:4]  # these heads stream in the answer


def test_a_budget_takes_as_few_streaming_heads_as_it_needs(gates):
    method = DuoAttention(gates, None, 4, 8)
    for budget in range(12, 101):
        count = len(streaming(method, budget=budget))
        mean = (count * 12 + (8 - count) * 100) / 8
        assert mean <= budget and (count == 0 or mean + 88 / 8 > budget)
    assert method.floor(100, 4) == 12 and method.floor(7, 4) == 7 and not method.divisible
    assert streaming(method, n=12, budget=12) == streaming(method, n=7, budget=7) == []


def test_the_ratio_by_hand():
    """Half of the heads stream 320 of 8,192 tokens: (8192 + 320) / 2 / 8192."""
    layers = random_state(1, heads=2, kv_heads=2, n=8192, head_dim=8, window=1, observed=False).layers
    method = DuoAttention(SCORES, 0.5)
    method._gates = type(method._gates)("", "kv_heads", ((0.0, 1.0),))
    cache = method.compress_layer(layers[0], 0, 1, 8192)
    assert cache.kept.r1 == pytest.approx(0.5195, abs=1e-4) and cache.kept.per_head == (320, 8192)
    assert cache.nbytes == (8192 + 320) * 2 * 8 * 4 and cache.filled_bytes == cache.nbytes


@pytest.mark.parametrize("n", [1, 3, 4, 5, 12, 13, 60])  # 4 sinks and 8 recent tokens may be the whole prompt
def test_attention_is_that_of_a_full_cache_in_which_streaming_heads_see_sinks_and_recent_tokens(gates, n):
    method = DuoAttention(gates, 0.5, 4, 8)
    state = random_state(4, n=n, window=min(n, 8))
    for index, cache in enumerate(method.compress(state, n)):
        layer = state.layers[index]
        keys, values, seen = layer.keys, layer.values, n
        streams = [head for at, head in streaming(method) if at == index]  # whatever the length
        assert cache.kept.per_head == tuple(min(n, 12) if head in streams else n for head in range(2))
        for step in range(24):  # longer than sinks and recent tokens
            generator = torch.Generator().manual_seed(step)
            query, key, value = (torch.randn(1, heads, 1, 8, generator=generator) for heads in (6, 2, 2))
            cache.update(key, value)
            keys, values, seen = torch.cat([keys, key[0]], 1), torch.cat([values, value[0]], 1), seen + 1
            mask = torch.ones(2, seen, dtype=torch.bool)
            mask[streams, 4 : max(seen - 9, 4)] = False  # the new token beside the 8 recent ones
            k, v, m = (x.repeat_interleave(3, dim=0) for x in (keys, values, mask))
            weights = (query[0] @ k.mT * layer.scaling).masked_fill(~m[:, None], float("-inf")).softmax(-1)
            assert_close(cache.attend(query, layer.scaling)[0], weights @ v, atol=1e-5, rtol=1e-5)
        assert [part.k.length for part in getattr(cache, "parts", [])][: bool(streams)] == [13] * bool(streams)


def test_the_ends_are_fullkv_and_streaming_llm(gates):
    model, ids = tiny_model(num_layers=4).double(), prompt(60)
    state = prefill(model, ids, Needs())

    def tokens(method, budget=12):
        return generate(model, method.compress(state, budget), state.logits, 20, frozenset()).tokens

    assert tokens(DuoAttention(gates, 0.0, 4, 8)) == tokens(FullKV())
    assert tokens(DuoAttention(gates, 1.0, 4, 7)) == tokens(StreamingLLM(sinks=4, decode="evict"))
    whole = tokens(DuoAttention(gates, 1.0, 40, 20))  # of the prompt, no token is dropped
    assert whole == tokens(StreamingLLM(sinks=40, decode="evict"), budget=61) != tokens(FullKV())


def test_a_token_launches_few_kernels_and_nothing_waits(gates):
    class Half(DuoAttention):
        def streaming(self, layer, budget):
            return [(index, head) for index in range(4) for head in range(launch_counts.KV_HEADS // 2)]

    method = Half(gates, 0.5, 4, 8)
    token, _ = launch_counts.decoding_per_layer(100, lambda _: [(method, 100)])
    assert token.waits == token.uploads == 0 and token.kernels <= 60, token.names


def test_without_gates_it_says_what_makes_them():
    with pytest.raises(UserError, match="DuoAttention needs gates_file=FILE: a released"):
        DuoAttention().compress(random_state(4, n=400), 100)
