"""Palu and xKV: the best product of a rank, bases of groups, a matrix that layers share, bytes, attention, growth."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.base import held_bytes
from kvbench.cache.coded import sequence
from kvbench.cache.coded.low_rank import thin_factors
from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import check_bytes
from kvbench.methods import XKV, Eviction, FullKV, Palu, StreamingLLM
from kvbench.methods.selection import Selection
from tests.support.every_method import rope
from tests.support.quantised import TOLERANCE, check_attention, check_heads_alone, check_own_memory, plain_attention
from tests.support.tiny import random_layer, random_state

DIM, LAYERS = 32, 5


def layer_of(n: int, dtype: torch.dtype = torch.float32):
    return random_layer(6, 2, n, DIM, dtype=dtype, rope=rope())


def state_of(n: int, dtype: torch.dtype = torch.float32):
    return random_state(LAYERS, n=n, head_dim=DIM, dtype=dtype, rope=rope())


def truncated(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The best matrix of a rank, float64."""
    left, values, right = torch.linalg.svd(x.double(), full_matrices=False)
    return left[:, :rank] * values[:rank] @ right[:rank]


def flat(rows: torch.Tensor) -> torch.Tensor:
    return rows.transpose(0, 1).flatten(1)


def before_rope(layer, rows: torch.Tensor) -> torch.Tensor:
    return layer.rope.rotate(rows, -torch.arange(rows.shape[1]))


@pytest.mark.parametrize(("n", "rank"), [(50, 6), (10, 10), (1, 1)])
def test_thin_factors_are_the_truncated_decomposition_of_all_together(n, rank):
    parts = [torch.randn(n, 12, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    left, rights = thin_factors(parts, 6.5 / 24 if rank == 6 else 1.0)
    assert left.shape == (n, min(rank, 24)) and [x.shape[1] for x in rights] == [12, 12]
    expected = truncated(torch.cat(parts, dim=1), rank)
    assert_close((left @ torch.cat(rights, dim=1)).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("group", [1, 2])
def test_palu_restores_the_best_of_each_group_before_rope(group):
    layer = layer_of(90)
    cache = Palu(0.25, group).store(layer, Selection.everything(layer))
    for rows, own in (
        (before_rope(layer, layer.keys), before_rope(layer, cache.k.read())),
        (layer.values, cache.v.read()),
    ):
        for start in range(0, 2, group):
            heads = slice(start, start + group)
            best = truncated(flat(rows[heads]), group * DIM // 4).float()
            assert_close(flat(own[heads]), best, atol=1e-4, rtol=1e-4)


def test_xkv_restores_the_best_of_its_layers_together():
    state = state_of(90)
    caches = XKV(2, 0.25, 0.5).store_all(state.layers, [Selection.everything(layer) for layer in state.layers])
    for start in (0, 2, 4):
        own = list(zip(caches, state.layers, strict=True))[start : start + 2]
        values = torch.cat([flat(layer.values) for _, layer in own], dim=1)
        best = truncated(values, values.shape[1] // 2).float()
        assert_close(torch.cat([flat(cache.v.read()) for cache, _ in own], dim=1), best, atol=1e-4, rtol=1e-4)
        keys = torch.cat([flat(before_rope(layer, layer.keys)) for _, layer in own], dim=1)
        best = truncated(keys, keys.shape[1] // 4).float()
        found = torch.cat([flat(before_rope(layer, cache.k.read())) for cache, layer in own], dim=1)
        assert_close(found, best, atol=1e-4, rtol=1e-4)


def test_a_full_rank_is_fullkv():
    state = state_of(40)
    for caches in (FullKV(Palu(1.0)).compress(state, 40), FullKV(XKV(2, 1.0, 1.0)).compress(state, 40)):
        for cache, layer in zip(caches, state.layers, strict=True):
            assert_close(cache.k.read(), layer.keys, atol=1e-4, rtol=1e-4)
            assert_close(cache.v.read(), layer.values, atol=1e-4, rtol=1e-4)


def test_bytes_of_palu_are_those_of_its_two_matrices():
    layer = layer_of(100, torch.bfloat16)
    cache = Palu(0.5).store(layer, Selection.everything(layer))
    rank = DIM  # half of two heads
    assert cache.nbytes == cache.filled_bytes == 2 * 2 * rank * (100 + 2 * DIM)
    assert cache.kept.r3 == pytest.approx(cache.nbytes / layer.nbytes)


def test_the_matrix_that_layers_share_counts_once():
    state = state_of(200, torch.bfloat16)
    caches = FullKV(XKV(4, 0.25, 0.5)).compress(state, 200)
    check_bytes(caches)
    for own, layers in ((caches[:4], 4), (caches[4:], 1)):
        channels = layers * 2 * DIM
        ranks = channels // 4 + channels // 2
        assert held_bytes(own) == 2 * ranks * (200 + channels)
    shared = [cache.k.left.untyped_storage().data_ptr() for cache in caches]
    assert len({*shared}) == 2 and caches[1].read_bytes > caches[1].filled_bytes
    stored = sum(cache.kept.r3 for cache in caches) / LAYERS
    assert stored == pytest.approx(sum(cache.nbytes for cache in caches) / state.nbytes)


@pytest.mark.parametrize("elements", [sequence.CPU_ELEMENTS, 7 * 2 * DIM])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["layer", "kv_head", "query_head"])
def test_attention_over_factors_is_attention_over_the_restored_rows(granularity, dtype, elements, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", elements)
    cache, value = check_attention(Palu(0.5, 2), granularity, layer_of(40, dtype))
    copies = len(cache.v.read()) // 2
    assert cache.k.length == 33 and torch.equal(cache.v.read()[:, -1], value[0, :, 0].repeat_interleave(copies, dim=0))


def test_xkv_takes_methods_that_keep_the_same_tokens_in_every_layer():
    state = state_of(60)
    caches = StreamingLLM(recent=20, sinks=None, storage=XKV(2, 0.9, 0.9)).compress(state, 20)
    check_bytes(caches)
    query, key, value = (torch.randn(1, heads, 1, DIM) for heads in (6, 2, 2))
    for cache in caches:
        cache.update(key, value)
        out = cache.attend(query, 0.25)
        assert_close(out, plain_attention(query, cache.k.read(), cache.v.read(), 0.25), atol=1e-5, rtol=1e-5)
    with pytest.raises(UserError, match="XKV needs the same tokens in every layer: Eviction keeps different tokens"):
        Eviction(storage=XKV())
    picks = [Selection(torch.arange(9)[None] + i, 9) for i in range(LAYERS)]
    with pytest.raises(UserError, match="layers 0 and 1 kept different tokens: XKV decomposes each token with the"):
        XKV().store_all(state.layers, picks)


def test_heads_of_different_lengths_are_what_each_is_alone():
    check_heads_alone(Palu(), layer_of(60))


def test_models_without_rotation_are_refused():
    for storage, name in ((Palu(), "Palu"), (XKV(), "XKV")):
        with pytest.raises(UserError, match=f"{name} needs a model with rotary"):
            FullKV(storage).compress(random_state(1, n=9), 9)


@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (2, 1), (3, 1), (6, 2), (8, 2)])
def test_groups_are_the_largest_that_divide_the_heads(heads, groups):
    layer = random_layer(heads, heads, 10, DIM, rope=rope())
    assert len(Palu(group=4).store(layer, Selection.everything(layer)).v.left) == groups


def test_nothing_of_the_prefill_state_is_kept():
    state = state_of(5)
    for storage in (Palu(1.0), XKV(2, 1.0, 1.0)):
        check_own_memory(FullKV(storage).compress(state, 5), state.layers)
