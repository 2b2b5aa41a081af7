"""Attention over packed codes in Triton: the reference's numbers."""

import pytest
import torch
from torch.testing import assert_close

from tests.support.kernels import interpreted
from tests.support.needs import need, packages
from tests.support.quantised import TOLERANCE, arguments, plain_attention, sequences

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.methods.kivi.kernels import quantised_attention as kernels  # noqa: E402


def agrees(n, grown, heads, g, head_dim, bits, group, ring, dtype):
    keys, values = sequences(n, heads, head_dim, bits, group, ring, dtype, grown)
    query = torch.randn(1, heads * g, 1, head_dim, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = kernels.quantised_attention(*arguments(query, keys, values, head_dim**-0.5))
    assert out.dtype == dtype
    expected = plain_attention(query, keys.read(), values.read(), head_dim**-0.5)
    assert_close(out.float(), expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("n, grown, heads, g, head_dim, bits, group, ring", [
    (1, 0, 2, 1, 64, 4, 32, 32),
    (32, 0, 1, 3, 64, 8, 32, 32),  # all keys quantised, no value
    (77, 41, 2, 4, 80, 4, 16, 16),
    (50, 33, 1, 8, 96, 2, 32, 32),
    (70, 0, 1, 4, 128, 4, 32, 64),
    (70, 20, 1, 4, 64, (8, 2), 32, 32),
    (70, 20, 1, 4, 64, (2, 4), 32, 32),
    (67, 3, 1, 3, 256, 2, 64, 64),
    (40, 33, 2, 3, 8, 2, 4, 12),
])  # fmt: skip
def test_it_is_attention_over_the_restored_rows(n, grown, heads, g, head_dim, bits, group, ring, dtype):
    agrees(n, grown, heads, g, head_dim, bits, group, ring, dtype)


def test_long_sequences_are_split_over_tokens():
    agrees(613, 0, 1, 2, 16, 4, 16, 32, torch.float32)
