"""ThinK: which channels go, what is stored, and attention without them."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.methods import Dense, Eviction, FullKV, LagKV, SimLayerKV, StreamingLLM, ThinK, WindowAttention
from kvbench.methods.selection import Selection
from kvbench.ops.bits import unpack_bits
from kvbench.prefill import Needs
from tests.support.quantised import TOLERANCE, plain_attention
from tests.support.tiny import random_layer


def everything(layer, **options):
    return ThinK(**options).store(layer, Selection.everything(layer))


def expanded(cache) -> torch.Tensor:
    """All keys, the channels that older ones lost as zeros."""
    heads, older, _ = cache.older.shape
    kept = unpack_bits(cache.channels, cache.values.buffer.shape[-1])
    keys = torch.zeros(heads, older, kept.shape[1], dtype=cache.older.dtype)
    for head in range(heads):
        keys[head][:, kept[head]] = cache.older[head]
    return torch.cat([keys, cache.recent.view], dim=1)


def test_the_channels_that_contribute_least_to_the_last_queries_go():
    layer = random_layer(heads=4, kv_heads=2, n=30, head_dim=8, window=16)
    cache = everything(layer, share=0.5, recent=4, window=6)
    for head in range(2):
        strength = []
        for channel in range(8):
            queries = layer.queries[2 * head : 2 * head + 2, -6:, channel]
            logits = queries.reshape(-1, 1) * layer.keys[head, :, channel]  # the channel's part of all logits
            strength.append(logits.square().sum().item())
        best = sorted(sorted(range(8), key=lambda channel: -strength[channel])[:4])
        assert unpack_bits(cache.channels, 8)[head].nonzero().flatten().tolist() == best
        assert torch.equal(cache.older[head], layer.keys[head, :26][:, best])
    assert torch.equal(cache.recent.view, layer.keys[:, 26:]) and torch.equal(cache.values.view, layer.values)


def test_more_dropped_channels_contain_fewer_ones_and_scales_of_queries_against_keys_change_nothing():
    layer = random_layer(n=30, head_dim=16, window=32)
    kept = [unpack_bits(everything(layer, share=share, recent=4).channels, 16) for share in (0.2, 0.5, 0.8)]
    assert (kept[0] >= kept[1]).all() and (kept[1] >= kept[2]).all()
    scales = torch.tensor([2.0, 0.25, 8.0, 1.0]).repeat(4)
    layer.keys, layer.queries = layer.keys * scales, layer.queries / scales
    assert torch.equal(unpack_bits(everything(layer, share=0.5, recent=4).channels, 16), kept[1])


@pytest.mark.parametrize("options", [{"share": 0.0}, {"recent": 64}])
def test_nothing_to_drop_is_a_dense_layer(options):
    layer = random_layer(n=40, window=32)
    cache = everything(layer, **options)
    assert isinstance(cache, DenseLayer) and cache.kept == Dense().store(layer, Selection.everything(layer)).kept


def test_the_stored_share_of_512_tokens():
    layer = random_layer(2, 1, 512, 128, window=32, dtype=torch.bfloat16)
    cache = everything(layer)
    assert cache.older.shape == (1, 480, 77)  # 51 of 128 channels dropped
    share = (1 + (32 * 128 + 480 * 77) / (512 * 128)) / 2
    assert share == pytest.approx(0.8132, abs=5e-5)
    assert cache.nbytes / layer.nbytes == cache.kept.r3 == pytest.approx(0.8133, abs=5e-5)
    assert cache.nbytes == cache.filled_bytes


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_is_that_over_keys_with_zeros_in_dropped_channels(granularity, dtype):
    layer = random_layer(n=60, head_dim=16, window=32, dtype=dtype)
    method = Eviction(scoring=WindowAttention(8), granularity=granularity, storage=ThinK(recent=10))
    cache = method.compress_layer(layer, 0, 1, 40)
    assert len(cache.older) == (2 if granularity == "kv_head" else 6)
    for _ in range(70):
        query, key, value = (torch.randn(1, heads, 1, 16).to(dtype) for heads in (6, 2, 2))
        cache.update(key, value)
        out = cache.attend(query, 0.25)
        assert_close(out.float(), plain_attention(query, expanded(cache), cache.values.view, 0.25), **TOLERANCE[dtype])
    assert cache.recent.length == 80 and cache.values.length == 110


def test_every_method_that_takes_it_observes_the_queries():
    storage = ThinK(window=20)
    wide, narrow = WindowAttention(window=24), WindowAttention(window=8)
    for method, window in (
        (FullKV(storage), 20),
        (Eviction(scoring=wide, storage=storage), 24),
        (Eviction(scoring=narrow, storage=storage), 20),
        (LagKV(storage=storage), 20),
        (StreamingLLM(storage=storage), 20),
        (SimLayerKV(storage=storage, w_last=8), 20),
    ):
        assert method.needs == Needs(window=window)


def test_queries_beyond_its_window_that_others_observed_change_nothing():
    layer = random_layer(n=40, head_dim=16, window=40)
    wide = everything(layer, recent=4, window=10)
    layer.queries = layer.queries[:, -10:]
    assert torch.equal(wide.older, everything(layer, recent=4, window=10).older)


def test_it_is_refused_where_queries_are_gone_and_where_no_channel_stays():
    with pytest.raises(UserError, match=r"variant=decode .* ThinK reads them"):
        SimLayerKV("decode", storage=ThinK())
    with pytest.raises(UserError, match="share=1 drops all 8 channels"):
        everything(random_layer(n=40, window=32), share=1.0)
