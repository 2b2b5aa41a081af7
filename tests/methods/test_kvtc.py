"""KVTC: bits by variance, the DEFLATE stream, principal axes, bytes, attention, growth."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.base import bytes_in_16_bits
from kvbench.cache.coded.transform import TransformSequence, principal_axes
from kvbench.errors import UserError
from kvbench.methods import KVTC, FullKV
from kvbench.methods.selection import Selection
from kvbench.ops.bit_allocation import MOST, allocate
from tests.reference import plain_kvtc
from tests.support.every_method import rope
from tests.support.quantised import TOLERANCE, check_attention, check_heads_alone, check_own_memory
from tests.support.tiny import random_layer, random_state

DIM = 32
SMALL = KVTC(6.0, sinks=2, recent=5)


def layer_of(n: int, dtype: torch.dtype = torch.float32):
    return random_layer(6, 2, n, DIM, dtype=dtype, rope=rope())


def correlated(n: int, rank: int = 3):
    """Rows [2, n, DIM] whose vectors lie near a plane of `rank` axes."""
    generator = torch.Generator().manual_seed(rank)
    mixed = torch.randn(n, rank, generator=generator) @ torch.randn(rank, 2 * DIM, generator=generator)
    return (mixed + 0.01 * torch.randn(n, 2 * DIM, generator=generator)).unflatten(1, (2, DIM)).transpose(0, 1)


@pytest.mark.parametrize("side", [0, 5])
@pytest.mark.parametrize("budget", [0, 7, 20, 41])
def test_bits_leave_the_smallest_error_of_all_choices(budget, side):
    variances = torch.tensor([9.0, 4.0, 2.5, 0.3], dtype=torch.float64)
    costs = {bits: sum(3 * b + side * (b > 0) for b in bits) for bits in product(range(5), repeat=4)}
    best = min(plain_kvtc.left(variances, bits) for bits, cost in costs.items() if cost <= budget)
    found = allocate(variances, 3, side, budget)
    assert plain_kvtc.left(variances, found.tolist()) == pytest.approx(best)
    assert sum(3 * b + side * (b > 0) for b in found.tolist()) <= budget


def test_a_component_without_variance_has_no_bits_and_none_more_than_the_most():
    assert allocate(torch.tensor([1.0, 0.0], dtype=torch.float64), 1, 0, 100).tolist() == [MOST, 0]


def test_axes_are_orthonormal_and_sort_variances():
    x = correlated(200).transpose(0, 1).flatten(1)
    variances, axes = principal_axes(x - x.mean(dim=0))
    assert_close(axes.T @ axes, torch.eye(2 * DIM), atol=1e-5, rtol=0)
    assert (variances.diff() <= 1e-9).all() and variances[3] < variances[2] / 1000
    assert_close(((x - x.mean(dim=0)) @ axes).double().square().mean(dim=0)[:3], variances[:3])
    assert (axes.amax(dim=0) == axes.abs().amax(dim=0)).all()  # the largest entry of each is positive


@pytest.mark.parametrize("bits", [1.5, 6.0])
def test_rows_are_restored_as_a_plain_reading_does(bits):
    rows = correlated(150)
    held = TransformSequence(rows, bits, 2, 5, None)
    plain = plain_kvtc.restored(rows[:, 2:145].transpose(0, 1).flatten(1), held.axes, held.bits.tolist())
    apart = (held.read()[:, 2:145].transpose(0, 1).flatten(1) - plain).abs().amax(dim=1)
    assert (apart > 2e-5).sum() <= 3 and apart.max() < 0.05  # where rounding decides between two codes
    assert torch.equal(held.read()[:, :2], rows[:, :2]) and torch.equal(held.read()[:, 145:], rows[:, 145:])


def test_correlated_rows_take_few_axes_and_bits():
    rows = correlated(400)
    held = TransformSequence(rows, 1.0, 0, 0, None)
    error = (held.read() - rows).square().mean() / rows.square().mean()
    assert held.bits[:3].tolist() == [MOST] * 3 and error < 1e-3
    assert bytes_in_16_bits(held.tensors(), [], 4) < 1.2 / 8 * rows.numel()
    assert len(held.stream) < 400 * int(held.bits.sum()) / 8 + 200


def test_keys_are_coded_before_their_rotation():
    layer = layer_of(300)
    layer.keys = layer.rope.rotate(correlated(300), torch.arange(300))
    indices = torch.stack(
        [torch.randperm(300, generator=torch.Generator().manual_seed(i))[:250].sort().values for i in range(2)]
    )
    cache = KVTC(2.0, sinks=0, recent=0).store(layer, Selection(torch.arange(250)[None], 250))
    assert cache.k.bits[:3].tolist() == [MOST] * 3
    kept = layer.keys[:, :250]
    assert (cache.k.read() - kept).square().mean() / kept.square().mean() < 1e-3
    apart = KVTC(7.0, sinks=0, recent=0).store(layer, Selection(indices, 250))
    kept = Selection(indices, 250).of(layer.keys)
    assert (apart.k.read() - kept).square().mean() / kept.square().mean() < 1e-2


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["layer", "kv_head", "query_head"])
def test_attention_over_the_stream_is_attention_over_the_restored_rows(granularity, dtype):
    cache, value = check_attention(SMALL, granularity, layer_of(60, dtype))
    copies = len(cache.v.read()) // 2
    assert cache.k.length == 53 and torch.equal(cache.v.read()[:, -1], value[0, :, 0].repeat_interleave(copies, dim=0))


def test_bytes_are_those_of_the_stream_and_of_what_decodes_it():
    layer = layer_of(200, torch.bfloat16)
    cache = SMALL.store(layer, Selection.everything(layer))
    for held in (cache.k, cache.v):
        axes = len(held.bits)
        assert axes > 0
        raw = 7 * 2 * DIM * 2
        assert held.filled_bytes == raw + len(held.stream) + axes * (2 * DIM * 2 + 2 * 2 + 1) + 2 * DIM * 2
        budget = 6.0 * 193 * 2 * DIM / 8
        coded = 193 * int(held.bits.sum()) / 8 + axes * (2 * DIM * 2 + 5)
        assert coded <= budget
    assert cache.kept.r3 == pytest.approx(cache.nbytes / layer.nbytes)


def test_heads_of_different_lengths_are_what_each_is_alone():
    check_heads_alone(SMALL, layer_of(60))


@pytest.mark.parametrize("n", [1, 7, 8, 9])
def test_the_shortest_prompts(n):
    layer = layer_of(n)
    cache = SMALL.store(layer, Selection.everything(layer))
    for _ in range(2):
        cache.update(torch.randn(1, 2, 1, DIM), torch.randn(1, 2, 1, DIM))
        assert cache.attend(torch.randn(1, 6, 1, DIM), 0.2).isfinite().all()
    assert n > 7 or torch.equal(cache.k.read()[:, :n], layer.keys)


def test_a_model_without_rotation_is_refused():
    with pytest.raises(UserError, match="KVTC needs a model with rotary"):
        FullKV(KVTC()).compress(random_state(1, n=9), 9)


def test_nothing_of_the_prefill_state_is_kept():
    layer = layer_of(5)
    cache = KVTC().store(layer, Selection.everything(layer))
    check_own_memory([cache], [layer])
