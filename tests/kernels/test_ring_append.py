"""Appending to the rings of quantised caches in Triton: the reference's bits."""

import pytest
import torch

from kvbench.methods.kivi.ring_append import ring_append
from kvbench.ops.operator import LAUNCHES
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.methods.kivi.kernels import ring_append as kernels  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim, copies", [(64, 1), (80, 3)])
def test_a_new_token_stands_where_the_reference_puts_it(head_dim, copies, dtype):
    assert LAUNCHES["ring_append"] == 1
    new = [torch.randn(2, 1, 2, head_dim).to(dtype).transpose(1, 2) for _ in range(2)]
    written = []
    for append in (ring_append, kernels.ring_append):
        lengths = torch.full((4 * copies,), 13, dtype=torch.int32)
        rings = [torch.zeros(4 * copies, rows, head_dim, dtype=dtype) for rows in (8, 6)]
        append(*rings, lengths, *new, 8)
        written.append([*rings, lengths])
    assert all(torch.equal(one, other) for one, other in zip(*written, strict=True))
    assert written[0][0][:, 5].any() and not written[0][0][:, :5].any()
