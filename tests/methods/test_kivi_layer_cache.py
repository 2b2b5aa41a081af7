"""Quantised caches of a batch move into one, in which each has the codes and counts the bytes of a cache alone."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.base import held_bytes, storage_bytes
from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedValues
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.kivi.layer_cache import QuantisedLayer
from kvbench.ops.softmax import Softmax
from tests.support.batch_layers import batch_layer

KV, HEADS, DIM, N, GROUP, RESIDUAL = 2, 6, 16, 37, 8, 16


def layer(seed: int, n: int = N, bits=(2, 4), heads: int = KV, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, heads, n, DIM, generator=generator).to(dtype)
    sequences = QuantisedKeys(keys, bits[0], GROUP, RESIDUAL), QuantisedValues(values, bits[1], GROUP, RESIDUAL)
    return QuantisedLayer(*sequences, N, Kept.tokens(n, n, N, heads))


def steps_agree(batch, alone, steps: range, scaling=0.3, dtype=torch.float32, held=True):
    """Outputs, bytes counted and read of each row after each step, and those held."""
    exact = 1e-6 if dtype == torch.float32 else 1e-2
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        query, keys, values = (
            torch.randn(len(alone), heads, 1, DIM, generator=generator).to(dtype) for heads in (HEADS, KV, KV)
        )
        batch.update(keys, values)
        together = batch.attend(query, scaling)
        for row, one in enumerate(alone):
            own = slice(row, row + 1)
            one.update(keys[own], values[own])
            assert_close(together[own], one.attend(query[own], scaling), atol=exact, rtol=exact)
            packed = batch.rows[row]
            assert (packed.filled_bytes, packed.read_bytes) == (one.filled_bytes, one.read_bytes)
            assert packed.nbytes == one.nbytes or not held


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("heads", [KV, HEADS])
def test_rows_of_a_batch_attend_as_each_does_alone_also_after_some_have_left(dtype, heads):
    """Over more steps than there are raw rows; `heads` = query heads: every one with its own copies."""
    batch, alone = ([layer(seed, heads=heads, dtype=dtype) for seed in range(3)] for _ in range(2))
    batch = batch_layer(batch)
    steps_agree(batch, alone, range(3), dtype=dtype)
    assert [type(part.cache) for part in batch.parts] == [QuantisedLayer]
    assert storage_bytes(batch.tensors()) == held_bytes(batch.rows), "nothing is held twice"
    for stay, steps in (([0, 2], range(3, RESIDUAL + 2)), ([1], range(RESIDUAL + 2, 3 * RESIDUAL))):
        batch.keep(stay)
        alone = [alone[row] for row in stay]
        steps_agree(batch, alone, steps, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_with_room_rows_attend_as_alone_and_no_tensor_is_replaced_when_a_block_is_quantised(dtype):
    steps = 3 * RESIDUAL
    batch, alone = ([layer(seed, dtype=dtype) for seed in range(2)] for _ in range(2))
    batch = batch_layer(batch)
    batch.make_room(steps)
    (rows,) = batch.joinable
    before, lasts, moves = [x.data_ptr() for x in rows.tensors()], [], rows.moves
    for step in range(steps):
        lasts.append(not rows.ahead)
        steps_agree(batch, alone, range(step, step + 1), dtype=dtype, held=False)
    assert [x.data_ptr() for x in rows.tensors()] == before and rows.moves == moves
    assert [step for step in range(steps) if lasts[step]] == [10, 26, 42]  # when there are 16 keys they are quantised
    assert rows.room == 0 and rows.lengths.tolist() == [N + steps] * 2 * KV


def test_only_caches_of_one_kind_are_joined():
    kinds = [{}, {"n": N - 1}, {"bits": (4, 4)}, {"heads": HEADS}, {}, {"dtype": torch.bfloat16}]
    made = [layer(seed, **kind) for seed, kind in enumerate(kinds)]
    assert [made[0].joins(other) for other in made] == [True, False, False, False, True, False]
    batch, alone = ([layer(seed, **kind) for seed, kind in enumerate(kinds[:-1])] for _ in range(2))
    batch = batch_layer(batch)
    steps_agree(batch, alone, range(RESIDUAL))
    assert sorted(part.rows for part in batch.parts) == [[0, 4], [1], [2], [3]]


def test_each_row_has_the_sinks_of_its_heads():
    scaling = Softmax(0.3, 5.0, torch.linspace(-1, 2, HEADS))
    batch, alone = ([layer(seed) for seed in range(3)] for _ in range(2))
    steps_agree(batch_layer(batch), alone, range(3), scaling)
