"""Appending to packed segments in Triton: the reference's bits."""

import pytest
import torch

from kvbench.ops.operator import LAUNCHES
from kvbench.ops.packed_append import packed_append
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import packed_append as kernels  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim, t", [(64, 1), (80, 3)])
def test_new_tokens_stand_where_the_reference_puts_them(head_dim, t, dtype):
    assert LAUNCHES["packed_append"] == 1
    sources = torch.tensor([0, 0, 1, 2, 3, 3], dtype=torch.int32)
    starts = torch.arange(0, 61, 10, dtype=torch.int32)
    new = [torch.randn(2, t, 2, head_dim).to(dtype).transpose(1, 2) for _ in range(2)]
    written = []
    for append in (packed_append, kernels.packed_append):
        lengths = torch.tensor([0, 5, 3, 7, 1, 2], dtype=torch.int32)
        stores = [torch.zeros(60, head_dim, dtype=dtype) for _ in range(2)]
        append(*stores, lengths, starts, sources, *new)
        written.append([*stores, lengths])
    assert all(torch.equal(one, other) for one, other in zip(*written, strict=True))
