"""Attention over packed segments in Triton: the reference's numbers."""

import pytest
import torch
from torch.testing import assert_close

from tests.reference.plain_packed import plain_packed_attention, segments
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import packed_attention as kernels  # noqa: E402

# float32: the sums of 256 channels and 300 tokens round in an order that depends on the CPU, by up to 3e-6.
TOLERANCE = {torch.float32: {"atol": 5e-6, "rtol": 5e-6}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}


def agrees(given):
    out = kernels.packed_attention(*given.arguments())
    assert out.dtype == given.query.dtype
    assert_close(out.float(), plain_packed_attention(given), **TOLERANCE[out.dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kv_heads, heads", [(2, 2), (1, 3), (2, 8), (1, 8)])
def test_heads_of_odd_lengths_and_none_attend_to_their_own_tokens(kv_heads, heads, dtype):
    agrees(segments([[37] * kv_heads, [0, 70][:kv_heads]], heads, dtype=dtype))


@pytest.mark.parametrize("head_dim", [8, 80, 96, 128, 256, 512])
def test_every_head_size_is_covered(head_dim):
    agrees(segments([[33, 5]], 4, head_dim))


def test_rows_of_kv_heads_and_of_query_heads_are_answered_together():
    agrees(segments([[40, 40], [7, 0, 300, 65]], 4))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_block_of_queries_is_causal_at_the_end(dtype):
    agrees(segments([[20, 6]], 6, q=6, dtype=dtype))  # 18 query rows a segment: two blocks


@pytest.mark.parametrize("q", [1, 4])
def test_bits_hide_tokens_of_the_prompt_from_single_query_heads(q):
    agrees(segments([[21, 40], [9, 9]], 6, q=q, masked=[[17, 33], [0, 0]]))


def test_long_segments_are_split_over_keys_and_short_ones_beside_them_are_not():
    agrees(segments([[700, 3]], 2))
