"""Layer caches: exact attention over what is kept, true positions, honest bytes, real eviction."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from kvbench.cache.base import BLOCK
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.h2o.method import HeavyHitterLayer
from kvbench.methods.selection import Selection, top_indices
from kvbench.methods.storage.dense import Dense
from kvbench.methods.streaming_llm import SlidingLayer
from kvbench.ops.attention import dense_attention
from kvbench.ops.bits import pack_bits, unpack_bits
from tests.support.tiny import random_layer

SCALING = 8**-0.5


def masked_attention(query, keys, values, visible):
    """Full attention with dropped keys masked: query [h,1,d], keys [kv,n,d], visible [h,n]."""
    group = query.shape[0] // keys.shape[0]
    logits = query @ keys.repeat_interleave(group, 0).mT * SCALING
    logits = logits.masked_fill(~visible[:, None], float("-inf"))
    return logits.softmax(-1) @ values.repeat_interleave(group, 0)


def step(cache, heads, kv_heads, seed):
    """Append one random token and ask one random query: (query, key, value, output)."""
    generator = torch.Generator().manual_seed(1000 + seed)
    query = torch.randn(1, heads, 1, 8, generator=generator)
    key, value = (torch.randn(1, kv_heads, 1, 8, generator=generator) for _ in range(2))
    assert cache.update(key, value) == (cache, cache)
    return query[0], key[0], value[0], cache.attend(query, SCALING)[0]


@given(
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 9),
    n=st.integers(2, 40),
    kept=st.integers(1, 40),
    per=st.sampled_from(["layer", "kv_head", "query_head"]),
    layout=st.sampled_from(["unfolded", "union"]),
    seed=st.integers(0, 5),
)
def test_attention_over_a_compressed_cache_is_full_attention_with_dropped_keys_masked(
    kv_heads, group, n, kept, per, layout, seed
):
    heads, kept = kv_heads * group, min(kept, n)
    layer = random_layer(heads, kv_heads, n, seed=seed)
    sets = {"layer": 1, "kv_head": kv_heads, "query_head": heads}[per]
    indices = top_indices(torch.randn(sets, n), kept)
    cache = Dense(layout).store(layer, Selection(indices, kept))
    visible = torch.zeros(sets, n, dtype=torch.bool).scatter_(1, indices, True).repeat_interleave(heads // sets, 0)
    keys, values = layer.keys, layer.values
    for t in range(3):
        query, key, value, out = step(cache, heads, kv_heads, t)
        keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
        visible = torch.cat([visible, torch.ones(heads, 1, dtype=torch.bool)], 1)
        assert_close(out, masked_attention(query, keys, values, visible), atol=1e-5, rtol=1e-5)
    assert cache.get_seq_length() == n + 3


@given(kv_heads=st.integers(1, 3), group=st.integers(1, 9), n=st.integers(2, 40), kept=st.integers(1, 40))
def test_bytes_are_those_of_the_vectors_kept(kv_heads, group, n, kept):
    heads, kept = kv_heads * group, min(kept, n)
    layer = random_layer(heads, kv_heads, n)
    row = 2 * 8 * 4  # K and V, head_dim 8, float32
    indices = top_indices(torch.randn(heads, n), kept)
    assert Dense().store(layer, Selection(indices, kept)).nbytes == heads * kept * row
    assert Dense().store(layer, Selection(indices[:kv_heads], kept)).nbytes == kv_heads * kept * row
    union = Dense("union").store(layer, Selection(indices, kept))
    if group > 1:
        anyone = [len(set(rows.flatten().tolist())) for rows in indices.unflatten(0, (kv_heads, group))]
        assert union.nbytes == sum(u * row + group * -(-u // 8) for u in anyone)
    else:
        assert union.nbytes == heads * kept * row


def test_bytes_after_decoding_count_the_slack_too():
    layer = random_layer(4, 2, 30)
    cache = Dense().store(layer, Selection.everything(layer))
    before = cache.nbytes
    step(cache, 4, 2, 0)
    assert cache.nbytes == before + 2 * 2 * BLOCK * 8 * 4


def test_evicted_tokens_are_gone_from_memory():
    layer = random_layer(4, 2, 30)
    marked = layer.keys.clone()
    marked[:, 5] = 12345.0
    layer.keys = marked
    cache = Dense().store(layer, Selection(torch.arange(10, 30)[None], 20))
    assert not any((tensor == 12345.0).any() for tensor in cache.tensors())
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in cache.tensors())  # no view of a larger tensor


@given(st.lists(st.lists(st.booleans(), min_size=11, max_size=11), min_size=1, max_size=4))
def test_packed_bits_come_back(rows):
    mask = torch.tensor(rows)
    bits = pack_bits(mask)
    assert bits.shape == (len(rows), 2)
    assert torch.equal(unpack_bits(bits, 11), mask)


class Recorder:
    """A plain list of all tokens, from which a test picks what a cache ought to see."""

    def __init__(self, layer):
        self.keys, self.values = layer.keys, layer.values

    def add(self, key, value):
        self.keys, self.values = torch.cat([self.keys, key], 1), torch.cat([self.values, value], 1)


@pytest.mark.parametrize("n, budget, sinks", [(20, 10, 4), (20, 20, 4), (6, 10, 4), (20, 5, 4), (9, 6, 0)])
def test_a_sliding_cache_sees_sinks_and_the_most_recent_tokens(n, budget, sinks):
    layer = random_layer(4, 2, n)
    keep = [i for i in range(n) if i < sinks or i >= n - (budget - sinks)] if n > budget else list(range(n))
    cache = SlidingLayer(
        layer.keys[:, keep], layer.values[:, keep], n, Kept.tokens(budget, len(keep), n, 2), budget, sinks, None
    )
    everything = Recorder(layer)
    for t in range(25):
        query, key, value, out = step(cache, 4, 2, t)
        everything.add(key, value)
        total = n + t + 1
        seen = torch.tensor([total <= budget or i < sinks or i >= total - (budget - sinks) for i in range(total)])
        expected = masked_attention(query, everything.keys, everything.values, seen.expand(4, -1))
        assert_close(out, expected, atol=1e-5, rtol=1e-5)
        assert cache.k.length == min(total, budget)


@pytest.mark.parametrize("n, budget, recent", [(20, 10, 5), (20, 20, 4), (6, 10, 3), (12, 11, 0)])
def test_an_updating_h2o_cache_follows_the_plain_algorithm(n, budget, recent):
    """Per head: attend over the kept set, add the attention to the scores, drop the lowest non-recent."""
    heads, kv_heads = 4, 2
    layer = random_layer(heads, kv_heads, n)
    scores = torch.rand(kv_heads, n)
    keep = top_indices(scores, min(budget, n))
    cache = HeavyHitterLayer(
        layer.keys.gather(1, keep[..., None].expand(-1, -1, 8)),
        layer.values.gather(1, keep[..., None].expand(-1, -1, 8)),
        scores.gather(1, keep),
        keep,
        n,
        Kept.tokens(budget, keep.shape[1], n, kv_heads),
        budget,
        recent,
    )
    everything = Recorder(layer)
    alive = [{int(i): float(scores[h, i]) for i in keep[h]} for h in range(kv_heads)]
    for t in range(30):
        query, key, value, out = step(cache, heads, kv_heads, t)
        everything.add(key, value)
        total = n + t + 1
        visible = torch.zeros(kv_heads, total, dtype=torch.bool)
        for h in range(kv_heads):
            alive[h][total - 1] = 0.0
            visible[h, list(alive[h])] = True
        visible = visible.repeat_interleave(2, 0)
        expected = masked_attention(query, everything.keys, everything.values, visible)
        assert_close(out, expected, atol=1e-5, rtol=1e-5)
        logits = query @ everything.keys.repeat_interleave(2, 0).mT * SCALING
        gained = logits.masked_fill(~visible[:, None], float("-inf")).softmax(-1)[:, 0].unflatten(0, (2, 2)).mean(1)
        for h in range(kv_heads):
            for i in alive[h]:
                alive[h][i] += float(gained[h, i])
            if len(alive[h]) > budget:
                old = [i for i in alive[h] if i < total - recent]
                del alive[h][min(old, key=lambda i: (alive[h][i], -i))]
                assert len(alive[h]) == budget


def test_dense_attention_is_causal_over_a_prompt():
    query, keys, values = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    out = dense_attention(query, keys, values, SCALING)
    for i in range(5):
        alone = dense_attention(query[:, :, i : i + 1], keys[:, :, : i + 1], values[:, :, : i + 1], SCALING)
        assert_close(out[:, :, i : i + 1], alone)
