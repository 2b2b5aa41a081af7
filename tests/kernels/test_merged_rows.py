"""Rows from shared directions in Triton: the reference's numbers."""

import pytest
import torch

from kvbench.methods.minicache.merged_rows import merged_rows as plain
from kvbench.ops.bits import pack_bits
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.methods.minicache.kernels import merged_rows as kernels  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("heads, n, k, head_dim", [
    (2, 37, 5, 64), (1, 1, 0, 80), (3, 9, 9, 96), (1, 300, 131, 128), (2, 70, 1, 256),
])  # fmt: skip
def test_every_token_is_its_retained_row_or_its_direction_times_its_length(heads, n, k, head_dim, dtype):
    generator = torch.Generator().manual_seed(n)
    chosen = torch.rand(heads, n, generator=generator).argsort(dim=1)[:, :k]
    bits = pack_bits(torch.zeros(heads, n, dtype=torch.bool).scatter_(1, chosen, True))
    directions = torch.randn(heads, n - k, head_dim, generator=generator).to(dtype)
    magnitudes = torch.rand(heads, n - k, generator=generator).to(dtype)
    retained = torch.randn(heads, k, head_dim, generator=generator).to(dtype)
    given = directions, magnitudes, retained, bits
    # the interpreter cuts numbers off to bfloat16
    tolerance = {"rtol": 0.0 if dtype == torch.float32 else 2**-7, "atol": 0.0}
    torch.testing.assert_close(kernels.merged_rows(*given), plain(*given), **tolerance)
