"""Appending to packed segments in Triton: the reference's bits, one launch, no spilled registers."""

import pytest
import torch

from kvbench.ops.operator import LAUNCHES
from kvbench.ops.packed_append import packed_append
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, resources
from tests.support.needs import need, packages

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import packed_append as kernels  # noqa: E402


@interpreted
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


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim, dtype", [(128, "bf16"), (256, "fp32")])
def test_the_kernel_spills_no_registers(head_dim, dtype, sm):
    tensors = dict.fromkeys(["keys", "values", "new_keys", "new_values"], f"*{dtype}")
    tables = dict.fromkeys(["lengths", "starts", "sources"], "*i32")
    numbers = dict.fromkeys(["stride_row", "stride_head", "stride_token", "kv_heads", "t"], "i32")
    constants = {"D": head_dim, "WIDTH": head_dim}
    assert resources(kernels.append_kernel, tensors | tables | numbers, constants, sm, num_warps=1)["spills"] == 0
