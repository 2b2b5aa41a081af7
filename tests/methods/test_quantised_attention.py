"""Attention over packed codes is attention over the rows that they stand for."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.methods.kivi import quantised_attention as operator
from kvbench.methods.kivi.quantised_attention import quantised_attention
from kvbench.ops.operator import LAUNCHES
from tests.support.quantised import TOLERANCE, arguments, plain_attention, sequences

# tokens, of which decoded, head_dim, bits, group, ring
SHAPES = [
    (1, 0, 64, 4, 32, 32),
    (31, 0, 64, 2, 32, 32),
    (32, 0, 64, 8, 32, 32),  # all keys quantised, no value
    (150, 0, 64, 4, 32, 64),
    (150, 90, 128, 2, 32, 32),
    (77, 60, 96, 4, 32, 32),
    (77, 41, 80, 4, 16, 16),
    (101, 7, 256, 8, 64, 64),
    (40, 33, 8, 2, 4, 12),
    (150, 90, 64, (4, 2), 32, 32),
    (150, 90, 64, (2, 8), 32, 32),
]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("heads, g", [(2, 1), (1, 3), (2, 4)])
def test_it_is_attention_over_the_restored_rows(shape, heads, g, dtype):
    n, grown, head_dim, bits, group, ring = shape
    keys, values = sequences(n, heads, head_dim, bits, group, ring, dtype, grown)
    query = torch.randn(1, heads * g, 1, head_dim, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = quantised_attention(*arguments(query, keys, values, head_dim**-0.5))
    assert out.dtype == dtype and out.shape == query.shape
    expected = plain_attention(query, keys.read(), values.read(), head_dim**-0.5)
    assert_close(out.float(), expected, **TOLERANCE[dtype])


def test_blocks_of_codes_add_up(monkeypatch):
    keys, values = sequences(300, 2, 64, 4, 32, 64)
    query = torch.randn(1, 4, 1, 64)
    whole = quantised_attention(*arguments(query, keys, values, 0.125))
    monkeypatch.setattr(operator, "BLOCK_ELEMENTS", 2 * 64 * 32 * 3)
    assert_close(quantised_attention(*arguments(query, keys, values, 0.125)), whole)


def test_large_float16_values_do_not_overflow_on_the_way():
    keys, values = sequences(100, 1, 32, 4, 32, 32)
    for sequence in (keys, values):
        for part in (*sequence.parts[1:], sequence.ring):
            part.buffer = (part.buffer * 1e4).half()
    query = torch.full((1, 1, 1, 32), 200.0, dtype=torch.float16)
    assert quantised_attention(*arguments(query, keys, values, 32**-0.5)).isfinite().all()


def test_a_gpu_launches_two_kernels_for_a_step_and_one_to_quantise_or_to_restore():
    assert [LAUNCHES[name] for name in ("quantised_attention", "quantise", "dequantise")] == [2, 1, 1]
