"""Attention over packed segments in Triton: the reference's numbers, two launches, no spilled registers."""

import pytest
import torch
from torch.testing import assert_close

from tests.reference.plain_packed import plain_packed_attention, segments
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources
from tests.support.needs import need, packages

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import packed_attention as kernels  # noqa: E402

# float32: the sums of 256 channels and 300 tokens round in an order that depends on the CPU, by up to 3e-6.
TOLERANCE = {torch.float32: {"atol": 5e-6, "rtol": 5e-6}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}


def agrees(given):
    out = kernels.packed_attention(*given.arguments())
    assert out.dtype == given.query.dtype
    assert_close(out.float(), plain_packed_attention(given), **TOLERANCE[out.dtype])


@interpreted
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kv_heads, heads", [(2, 2), (1, 3), (2, 8), (1, 8)])
def test_heads_of_odd_lengths_and_none_attend_to_their_own_tokens(kv_heads, heads, dtype):
    agrees(segments([[37] * kv_heads, [0, 70][:kv_heads]], heads, dtype=dtype))


@interpreted
@pytest.mark.parametrize("head_dim", [8, 80, 96, 128, 256])
def test_every_head_size_is_covered(head_dim):
    agrees(segments([[33, 5]], 4, head_dim))


@interpreted
def test_rows_of_kv_heads_and_of_query_heads_are_answered_together():
    agrees(segments([[40, 40], [7, 0, 300, 65]], 4))


@interpreted
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_block_of_queries_is_causal_at_the_end(dtype):
    agrees(segments([[20, 6]], 6, q=6, dtype=dtype))  # 18 query rows a segment: two blocks


@interpreted
@pytest.mark.parametrize("q", [1, 4])
def test_bits_hide_tokens_of_the_prompt_from_single_query_heads(q):
    agrees(segments([[21, 40], [9, 9]], 6, q=q, masked=[[17, 33], [0, 0]]))


@interpreted
def test_long_segments_are_split_over_keys_and_short_ones_beside_them_are_not():
    agrees(segments([[700, 3]], 2))


@interpreted
def test_a_call_launches_what_the_operator_says(monkeypatch):
    from kvbench.ops.operator import LAUNCHES

    launched = record_launches(monkeypatch, kernels, "split_kernel", "combine_kernel")
    agrees(segments([[9]], 2))
    assert len(launched) == LAUNCHES["packed_attention"]


SPLIT = {
    **dict.fromkeys(["starts", "lengths", "heads", "masked", "bit_starts"], "*i32"),
    **dict.fromkeys(["partial", "lse"], "*fp32"),
    **dict.fromkeys(["q", "total", "split_keys"], "i32"),
    "bits": "*u8",
    "scaling": "fp32",
}


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim, dtype, rows, bits", [
    (64, "bf16", 8, False), (128, "bf16", 4, False), (128, "bf16", 4, True), (128, "fp32", 4, True),
    (256, "bf16", 8, False), (256, "fp32", 64, True), (80, "bf16", 64, False),
])  # fmt: skip
def test_the_split_kernel_spills_no_registers(head_dim, dtype, rows, bits, sm):
    used = resources(
        kernels.split_kernel,
        SPLIT | dict.fromkeys(["query", "keys", "values"], f"*{dtype}"),
        {"D": head_dim, "BITS": bits, **kernels.block_sizes(rows, head_dim)},
        sm,
    )
    assert used["spills"] == 0
    assert used["shared"] <= 100_000, used


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim", [64, 256])
def test_the_combining_kernel_spills_no_registers(head_dim, sm):
    width = kernels.block_sizes(1, head_dim)["WIDTH"]
    signature = {"partial": "*fp32", "lse": "*fp32", "out": "*bf16", "splits": "i32", "total": "i32"}
    constants = {"D": head_dim, "WIDTH": width, "AT_ONCE": kernels.SPLITS_AT_ONCE}
    assert resources(kernels.combine_kernel, signature, constants, sm, num_warps=2)["spills"] == 0
