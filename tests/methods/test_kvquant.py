"""KVQuant: fitted levels, outliers, keys before RoPE, bytes, attention over codes, growth."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded import sequence
from kvbench.cache.coded.positions import KeyPositions
from kvbench.errors import UserError
from kvbench.methods import FullKV, KVQuant
from kvbench.methods.kvquant.fitted_levels import BINS, fitted_levels
from kvbench.methods.kvquant.sequence import NonUniformKeys, NonUniformValues, outside, percentiles
from kvbench.methods.selection import Selection
from tests.reference import plain_kvquant
from tests.support.every_method import rope
from tests.support.paths import ROOT
from tests.support.quantised import TOLERANCE, check_attention, check_heads_alone, check_own_memory
from tests.support.tiny import random_layer, random_state

DIM = 32


def layer_of(n: int, dtype: torch.dtype = torch.float32, seed: int = 0):
    return random_layer(6, 2, n, DIM, dtype=dtype, seed=seed, rope=rope())


@pytest.mark.parametrize("count", [4, 8, 16])
def test_levels_are_those_of_lloyds_iteration_over_the_numbers(count):
    numbers = torch.randn(3000, generator=torch.Generator().manual_seed(count)) / 4
    wanted = torch.ones(3000, dtype=torch.bool)
    inside = numbers[numbers.abs() <= 1]
    levels = fitted_levels(numbers, wanted, count)
    assert_close(levels.double(), plain_kvquant.lloyd(inside, count), atol=20 * 2 / BINS, rtol=0)
    assert torch.equal(levels, fitted_levels(numbers.flip(0), wanted, count))


def test_levels_of_two_numbers_are_these_and_of_none_are_spread():
    numbers = torch.tensor([-0.5] * 3 + [0.25] * 5)
    levels = fitted_levels(numbers, torch.ones(8, dtype=torch.bool), 4)
    assert {min(abs(float(level) - x) for x in (-0.5, 0.25)) < 2 / BINS for level in levels} == {True}
    assert_close(fitted_levels(numbers, torch.zeros(8, dtype=torch.bool), 3), torch.tensor([-1.0, 0.0, 1.0]))


@pytest.mark.parametrize(("width", "share", "count"), [(4096, 0.01, 21), (64, 0.01, 1), (192, 0.0, 0), (101, 0.1, 6)])
def test_numbers_at_or_beyond_a_percentile(width, share, count):
    numbers = torch.arange(width).double()
    assert outside(width, share) == count
    if share:
        assert int((numbers >= torch.quantile(numbers, 1 - share / 2)).sum()) == count


def test_percentiles_are_torchs():
    x = torch.randn(57, 5)
    low, high = percentiles(x, 0.03)
    assert_close(low, x.quantile(0.03, dim=0))
    assert_close(high, x.quantile(0.97, dim=0))


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_rows_are_restored_as_a_plain_reading_does(bits):
    layer = layer_of(70)
    keys = NonUniformKeys(layer.keys, bits, 0.05, 2, KeyPositions(layer.rope, None, 70, 70, layer.keys.device))
    before = keys.flat(layer.rope.rotate(layer.keys, -torch.arange(70)))
    found = keys.flat(layer.rope.rotate(keys.read(), -torch.arange(70)))
    side = outside(2 * DIM, 0.05)
    for x, own in list(zip(before, found, strict=True))[2:]:
        assert_close(own, plain_kvquant.restored(x, keys.levels, *keys.channels, side), atol=1e-5, rtol=1e-5)
    assert torch.equal(keys.read()[:, :2], layer.keys[:, :2])
    values = NonUniformValues(layer.values, bits, 0.05, 0)
    for x, own in zip(values.flat(layer.values), values.flat(values.read()), strict=True):
        rest = x.sort().values[side : len(x) - side]
        normal = ((rest[-1] - rest[0]) / 2, (rest[-1] + rest[0]) / 2)
        assert_close(own, plain_kvquant.restored(x, values.levels, *normal, side), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("elements", [sequence.CPU_ELEMENTS, 7 * 2 * DIM])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["layer", "kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(granularity, dtype, elements, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", elements)
    check_attention(KVQuant(3, sinks=3), granularity, layer_of(40, dtype))


def test_keys_return_to_the_positions_that_they_had():
    layer = layer_of(200)
    indices = torch.stack([torch.randperm(200)[:90].sort().values for _ in range(2)])
    cache = KVQuant(outliers=0.3).store(layer, Selection(indices, 90))
    kept = Selection(indices, 90).of(layer.keys)
    key = torch.randn(1, 2, 1, DIM) * 0.1
    cache.update(key, key)
    error = (cache.k.read() - torch.cat([kept, key[0]], dim=1)).square().mean() / kept.square().mean()
    assert error < 0.01


def test_bytes_are_those_of_codes_outliers_and_what_decodes_them():
    layer = layer_of(100, torch.bfloat16)
    width, side = 2 * DIM, 1
    cache = KVQuant(4).store(layer, Selection.everything(layer))
    apart = 100 * 2 * side * (2 + 2)
    keys = 100 * width // 2 + apart + 16 * 4 + 2 * width * 2 + 2 * DIM * 2
    values = 100 * width // 2 + apart + 100 * 2 * 2 + 16 * 4 + 2 * DIM * 2
    assert cache.nbytes == cache.filled_bytes == keys + values
    assert cache.kept.r3 == pytest.approx(cache.nbytes / layer.nbytes)
    evicted = KVQuant(4).store(layer, Selection(torch.arange(50)[None].expand(2, -1), 50))
    assert evicted.k.positions.stored.nbytes == 2 * 50 * 2


def test_outliers_are_exact_and_leave_the_levels_to_the_others():
    rows = torch.randn(2, 60, DIM, generator=torch.Generator().manual_seed(1))
    rows[1, 20, 5] = 80.0
    error = {}
    for share in (0.0, 0.01):
        held = NonUniformValues(rows, 4, share, 0)
        error[share] = (held.read() - rows)[:, 20].square().mean()
        exact = held.read()[1, 20, 5]
    assert exact == 80 and error[0.01] < error[0.0] / 20


def test_values_quantised_one_by_one_are_those_quantised_at_once_under_the_same_levels():
    rows = torch.randn(2, 30, DIM)
    whole, grown = NonUniformValues(rows, 3, 0.05, 1), NonUniformValues(rows[:, :12], 3, 0.05, 1)
    grown.levels = whole.levels
    grown.parts = [
        type(part)(own) for part, own in zip(grown.parts, grown.encoded(whole.flat(rows[:, :12])), strict=True)
    ]
    for i in range(12, 30):
        grown.append(rows[:, i : i + 1])
    assert torch.equal(whole.read(), grown.read())


def test_heads_of_different_lengths_are_what_each_is_alone():
    check_heads_alone(KVQuant(), layer_of(60))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_shortest_prompts(n):
    layer = layer_of(n)
    cache = KVQuant(sinks=1).store(layer, Selection.everything(layer))
    for _ in range(2):
        cache.update(torch.randn(1, 2, 1, DIM), torch.randn(1, 2, 1, DIM))
        assert cache.attend(torch.randn(1, 6, 1, DIM), 0.2).isfinite().all()


@pytest.mark.parametrize(("n", "tokens"), [(201, 200), (202, 1)])
def test_nan_in_a_key_reaches_its_channel_in_prompts_of_the_length_that_the_documentation_names(n, tokens):
    assert "a key's channel, in prompts of up to 201 kept tokens" in (ROOT / "docs" / "methods.md").read_text()
    layer = layer_of(n)
    layer.keys[0, 50, 3] = float("nan")
    read = KVQuant().store(layer, Selection.everything(layer)).k.read()
    assert read[0].isnan().any(dim=1).sum() == tokens  # the sink stays as it is


def test_a_model_without_rotation_and_a_head_of_twelve_channels_are_refused():
    with pytest.raises(UserError, match="KVQuant needs a model with rotary"):
        FullKV(KVQuant()).compress(random_state(1, n=9), 9)
    layer = random_layer(n=10, head_dim=12, rope=rope(), observed=False)
    with pytest.raises(UserError, match="KVQuant packs channels in eights, but this model has 12"):
        KVQuant().store(layer, Selection.everything(layer))


def test_nothing_of_the_prefill_state_is_kept():
    layer = layer_of(5)
    cache = KVQuant(sinks=5).store(layer, Selection.everything(layer))
    check_own_memory([cache], [layer])
