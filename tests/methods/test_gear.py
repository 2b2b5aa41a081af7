"""GEAR: outliers, the low rank part, buffers, bytes, attention over codes, growth."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded import sequence
from kvbench.errors import UserError
from kvbench.methods import GEAR, FullKV
from kvbench.methods.gear.low_rank import low_rank
from kvbench.methods.gear.sequence import GearSequence, KeyPart, Recipe, ValuePart
from kvbench.methods.selection import Selection
from tests.reference import plain_gear
from tests.support.quantised import TOLERANCE, check_attention, check_heads_alone, check_own_memory
from tests.support.tiny import random_layer, random_state

DIM = 32
RECIPES = [Recipe(4, None, 0.1, 0), Recipe(2, 16, 0.1, 0), Recipe(2, 16, 0.0, 3), Recipe(4, None, 0.06, 2)]


def rows_of(n: int, seed: int = 0):
    return torch.randn(2, n, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def held(rows, kind, recipe):
    return GearSequence(rows, kind, recipe, recipe, 64)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
@pytest.mark.parametrize("kind", [KeyPart, ValuePart])
def test_rows_are_restored_as_a_plain_reading_does(kind, recipe):
    rows = rows_of(48)
    plain = plain_gear.keys if kind is KeyPart else plain_gear.values
    assert_close(held(rows, kind, recipe).read(), plain(rows, *vars(recipe).values()), atol=2e-6, rtol=2e-6)


def test_some_more_rounds_come_closer_to_the_best_matrix_of_a_rank():
    x = rows_of(60) * 0.7 ** torch.arange(DIM)
    exact = torch.linalg.svd(x).S[:, 4:].square().sum(dim=1).sqrt()
    parts = [low_rank(x, 4, rounds) for rounds in (1, 3, 5)]
    errors = [(x - left @ right.mT).norm(dim=(1, 2)) for left, right in parts]
    assert (errors[0] > errors[1]).all() and (errors[1] > errors[2]).all()
    assert_close(errors[2], exact, rtol=2e-2, atol=0)


def test_a_full_rank_restores_what_rounding_lost():
    rows = rows_of(64)
    error = {rank: held(rows, KeyPart, Recipe(2, 16, 0.0, rank)).read() - rows for rank in (0, 4, DIM)}
    assert error[0].abs().max() > error[4].square().mean().sqrt() > 0.05
    assert error[4].square().mean() < 0.9 * error[0].square().mean()
    assert_close(error[DIM], torch.zeros_like(rows), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [KeyPart, ValuePart])
def test_outliers_are_exact_and_leave_smaller_steps_to_the_others(kind):
    rows = rows_of(100)
    rows[1, 20, 5] = 50.0
    error = {share: held(rows, kind, Recipe(4, None, share, 0)).read() - rows for share in (0.0, 0.04)}
    channel = (1, slice(None), 5) if kind is KeyPart else (slice(None), 20)
    assert error[0.04][1, 20, 5] == 0
    assert error[0.04][channel].square().mean() < error[0.0][channel].square().mean() / 20


@pytest.mark.parametrize("elements", [sequence.CPU_ELEMENTS, 7 * 2 * DIM])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(granularity, dtype, elements, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", elements)
    storage = GEAR(2, group=8, outliers=0.1, buffer=16)
    layer = random_layer(n=40, head_dim=DIM, dtype=dtype)
    cache, _ = check_attention(storage, granularity, layer, tokens=25)  # the buffer is compressed in between
    assert len(cache.k.parts) == 2 and len(cache.v.parts) == 2


def test_decoded_tokens_wait_as_they_are_and_are_compressed_together():
    rows, later = rows_of(20), rows_of(16, seed=1)
    cache = GearSequence(rows, KeyPart, Recipe(4, 8, 0.0, 2), Recipe(4, 8, 0.0, 1), 8)
    assert cache.raw.length == 4 and torch.equal(cache.read()[:, 16:], rows[:, 16:])  # beyond a multiple of the group
    for i in range(16):
        cache.append(later[:, i : i + 1])
    assert cache.length == 36 and cache.raw.length == 4 and len(cache.parts) == 3
    assert torch.equal(cache.read()[:, 32:], later[:, 12:])
    alone = GearSequence(torch.cat([rows[:, 16:], later[:, :4]], dim=1), KeyPart, cache.later, cache.later, 8)
    assert torch.equal(cache.read()[:, 16:24], alone.read())
    assert cache.parts[1].left.shape[2] == 1


def test_bytes_are_those_of_codes_outliers_and_thin_matrices():
    layer = random_layer(6, 2, 100, DIM, dtype=torch.bfloat16)
    cache = GEAR().store(layer, Selection.everything(layer))
    codes, ranks = 100 * 2 * DIM // 2, 2 * 2 * 4 * (100 + DIM)
    keys = codes + ranks + 2 * DIM * (2 * 2 + 2 * (2 + 2))  # a scale, a minimum, and 2 of 100 numbers, of each channel
    values = codes + ranks + 100 * 2 * 2  # int(0.64) numbers of 64 at each end: none
    assert cache.nbytes == cache.filled_bytes == keys + values
    assert cache.kept.r3 == pytest.approx(cache.nbytes / layer.nbytes)


def test_heads_of_different_lengths_are_what_each_is_alone():
    check_heads_alone(GEAR(), random_layer(6, 2, 60, DIM))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_shortest_prompts(n):
    layer = random_layer(6, 2, n, DIM)
    cache = GEAR(buffer=2).store(layer, Selection.everything(layer))
    for _ in range(5):
        cache.update(torch.randn(1, 2, 1, DIM), torch.randn(1, 2, 1, DIM))
        assert cache.attend(torch.randn(1, 6, 1, DIM), 0.2).isfinite().all()


def test_groups_that_do_not_divide_are_refused():
    with pytest.raises(UserError, match="buffer=20 must be a multiple of group=16"):
        GEAR(group=16, buffer=20)
    with pytest.raises(UserError, match="group=32 must divide the channels of a token: a token has 2 times 8"):
        FullKV(GEAR(2, 32)).compress(random_state(1, n=9), 9)


def test_nothing_of_the_prefill_state_is_kept():
    layer = random_layer(6, 2, 13, DIM)
    cache = GEAR(group=8, buffer=8).store(layer, Selection.everything(layer))
    check_own_memory([cache], [layer])
