"""Appending to the rings of quantised caches in Triton: the reference's bits, one launch, no spilled registers."""

import pytest
import torch

from kvbench.methods.kivi.ring_append import ring_append
from kvbench.ops.operator import LAUNCHES
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, resources
from tests.support.needs import need, packages

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.methods.kivi.kernels import ring_append as kernels  # noqa: E402


@interpreted
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


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim, dtype", [(128, "bf16"), (256, "fp32")])
def test_the_kernel_spills_no_registers(head_dim, dtype, sm):
    tensors = dict.fromkeys(["key_rows", "value_rows", "keys", "values"], f"*{dtype}") | {"lengths": "*i32"}
    numbers = ["stride_row", "stride_head", "kv_heads", "copies", "ring", "key_head", "value_head"]
    constants = {"D": head_dim, "WIDTH": head_dim}
    signature = tensors | dict.fromkeys(numbers, "i32")
    assert resources(kernels.ring_append_kernel, signature, constants, sm, num_warps=1)["spills"] == 0
