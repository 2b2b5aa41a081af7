"""Keys less their channels' means, in storages of codes: what is stored, restored, counted and attended to."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded import sequence
from kvbench.methods import Eviction, WindowAttention
from kvbench.methods.storage.base import KeptLayer
from kvbench.methods.storage.block_formats import Ggml, Microscaling
from kvbench.methods.storage.dense import Dense
from kvbench.methods.storage.fp8 import Fp8
from kvbench.methods.storage.int8 import Int8
from kvbench.methods.storage.smoothed_keys import SmoothedKeys, mean_of
from kvbench.methods.turboquant.storage import TurboQuant
from kvbench.ops.softmax import Softmax
from tests.support.quantised import TOLERANCE, check_attention
from tests.support.tiny import random_layer, random_state

STORAGES = [Fp8("token"), Fp8("channel"), Int8(), Ggml("q4_0", "q4_0"), Microscaling("nvfp4", "nvfp4"), TurboQuant()]
LARGE = {5: 300, 9: -170}  # channels of keys that are far from zero and nearly constant


def with_large_channels(dtype=torch.float32):
    """A layer as a bias of the key projection makes it."""
    layer = random_layer(n=40, head_dim=32, dtype=dtype)
    keys = layer.keys.clone()
    for channel, mean in LARGE.items():
        keys[..., channel] += mean
    return replace(layer, keys=keys)


def stored(storage, layer):
    """The cache of the 30 tokens that SnapKV's scores choose."""
    return Eviction(scoring=WindowAttention(8), granularity="kv_head", storage=storage).compress_layer(layer, 0, 1, 30)


def test_keys_by_hand():
    """Two tokens of means 100 and 2: ±1 and ∓1 are exact in e4m3, and so are decoded tokens near the same means."""
    keys = torch.tensor([[[101.0, 1.0], [99.0, 3.0]]])
    codes = SmoothedKeys(Fp8("unit")).sequence("k", keys)
    assert codes.mean.tolist() == [[[100.0, 2.0]]]
    assert codes.parts[0].view.float().tolist() == [[[1.0, -1.0], [-1.0, 1.0]]]
    codes.append(torch.tensor([[[100.5, 4.0]]]))
    assert codes.read().tolist() == [[[101.0, 1.0], [99.0, 3.0], [100.5, 4.0]]]
    assert codes.logits(torch.tensor([[[1.0, 10.0]]]), 0.5, 3).tolist() == [[[55.5, 64.5, 70.25]]]


@pytest.mark.parametrize("storage", STORAGES, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_large_constant_channels_cost_nothing(storage, dtype):
    """The error is that of keys without such channels, and many times that in the storage alone."""
    layer = with_large_channels(dtype)
    plain, smoothed = (stored(each, layer).k.restored() for each in (storage, SmoothedKeys(storage)))
    rows = stored(Dense(), layer).as_dense().keys[0]
    errors = [float((keys - rows.float()).square().mean().sqrt()) for keys in (plain, smoothed)]
    assert errors[1] < 0.2 and errors[0] > 4 * errors[1]


@pytest.mark.parametrize("storage", STORAGES, ids=repr)
def test_values_and_keys_of_mean_zero_are_as_in_the_storage(storage):
    layer = random_layer(n=40, head_dim=32)
    keys = (64 * layer.keys).round() / 64  # of which sums are exact
    rows = {"k": torch.cat([keys, -keys], dim=1), "v": layer.values}
    for which in rows:
        plain, smoothed = (each.sequence(which, rows[which]).restored() for each in (storage, SmoothedKeys(storage)))
        assert torch.equal(smoothed, plain)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(granularity, dtype, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", 2 * 16 * 7)  # blocks of 7 tokens or fewer
    check_attention(SmoothedKeys(Fp8("token")), granularity, random_layer(n=40, head_dim=16, dtype=dtype))


def test_a_soft_cap_and_sinks_see_the_logits_of_whole_keys():
    layer = with_large_channels()
    cache = stored(SmoothedKeys(Int8()), layer)
    query = torch.randn(1, 6, 1, 32)
    cache.append(layer.keys[None, :, :1], layer.values[None, :, :1])
    out = cache.attend(query, Softmax(0.1, softcap=20.0, sinks=torch.linspace(-1, 1, 6)))
    keys, values = (rows.double().repeat_interleave(3, dim=0) for rows in (cache.k.restored(), cache.v.restored()))
    logits = 20 * torch.tanh(query[0].double() @ keys.mT * 0.1 / 20)
    weights = torch.cat([logits, torch.linspace(-1, 1, 6).double()[:, None, None]], dim=-1).softmax(-1)[..., :-1]
    assert_close(out[0], (weights @ values).float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bytes_are_the_storages_and_a_vector_of_each_head(dtype):
    state = random_state(4, n=40, head_dim=16)
    for layer in state.layers:
        layer.keys, layer.values = layer.keys.to(dtype), layer.values.to(dtype)
        plain, smoothed = (stored(storage, layer) for storage in (Int8(), SmoothedKeys(Int8())))
        assert smoothed.nbytes == plain.nbytes + 2 * 16 * dtype.itemsize == smoothed.filled_bytes
        assert smoothed.kept.r3 == pytest.approx(plain.kept.r3 + 0.5 / 30)
    kept = KeptLayer(30, 2, 16, 0, 4)
    assert SmoothedKeys(Int8()).least_share(2, kept) == Int8().least_share(2, kept)


def test_in_sixteen_bits_the_mean_halves_and_scales_do_not():
    layer = random_layer(n=40, head_dim=16)
    caches = [stored(storage, layer) for storage in (Int8(), SmoothedKeys(Int8()))]
    (codes, mean), in_16_bits = (cache.nbytes for cache in caches), [cache.bytes_in_16_bits(4) for cache in caches]
    assert in_16_bits == [codes, codes + (mean - codes) // 2]


def test_layers_that_the_storage_leaves_raw_are_raw():
    state = random_state(4, n=40, head_dim=16)
    storage = SmoothedKeys(TurboQuant(raw_layers=1))
    caches = Eviction(scoring=WindowAttention(8), granularity="kv_head", storage=storage).compress(state, 30)
    assert [cache.kept.r3 < 1 for cache in caches] == [False, True, True, False]


def test_what_is_not_finite_stays_in_its_token():
    keys = torch.ones(1, 4, 4)
    keys[0, 2, 3], keys[0, 3, 3] = float("nan"), float("inf")
    assert mean_of(keys).isfinite().all()
    read = SmoothedKeys(Int8()).sequence("k", keys).read()
    assert_close(read[0, :2], keys[0, :2])
    assert read[0, 2:].isnan().all()


@pytest.mark.parametrize("storage", STORAGES, ids=repr)
def test_of_one_row_or_none_the_mean_is_zero_and_later_tokens_are_finite(storage):
    assert not mean_of(torch.empty(2, 0, 4)).any() and not mean_of(torch.ones(2, 1, 4)).any()
    codes = SmoothedKeys(storage).sequence("k", torch.randn(2, 1, 32))
    codes.append(torch.randn(2, 3, 32))
    assert codes.read().isfinite().all()
