"""Attention over a codebook cache in Triton: the reference's numbers."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops.operator import use_kernels
from kvbench.ops.rope import Rope
from tests.support.codebook_caches import random_cache
from tests.support.kernels import interpreted
from tests.support.needs import need, packages
from tests.support.tiny import tiny_model

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

# of sums in another order
TOLERANCE = {torch.float32: {"atol": 3e-6, "rtol": 3e-6}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}


def agrees(cache, group, decoded=0):
    """Attention over the cache, after `decoded` more tokens."""
    head_dim, dtype = cache.raw.keys.shape[1], cache.raw.keys.dtype
    generator = torch.Generator().manual_seed(1)
    for _ in range(decoded):
        key, value = torch.randn(2, 1, len(cache.raw.windows), 1, head_dim, generator=generator).to(dtype)
        cache.update(key, value)
    query = torch.randn(1, len(cache.places) * group, 1, head_dim, generator=generator).to(dtype)
    with use_kernels("torch"):
        expected = cache.attend(query, 0.2)
    with use_kernels("triton"):
        out = cache.attend(query, 0.2)
    assert out.dtype == dtype
    assert_close(out.float(), expected.float(), **TOLERANCE[dtype])


def rope(head_dim):
    return Rope.from_model(tiny_model(head_dim=head_dim))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_streams_of_odd_lengths_and_none_read_their_entries(group, dtype):
    cache = random_cache([37, 0], [11, 0], [5, 7], group, 8, dtype, bits=[0])
    agrees(cache, group)
    agrees(cache, group, decoded=3)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_every_head_size_is_covered(head_dim):
    agrees(random_cache([21, 5], [9, 3], [0, 2], 2, head_dim, bits=[1], runs=[0], rope=rope(head_dim)), 2, decoded=1)


def test_references_of_two_and_four_bytes_and_long_streams_in_several_splits_are_read():
    agrees(random_cache([300, 20], [400, 3], [1, 1], 2, 8, bits=[0, 1]), 2)
    agrees(random_cache([9, 9], [70000, 300], [1, 1], 1, 8), 1)


def test_streams_that_share_a_book_or_a_head_and_entries_without_magnitudes_are_read():
    agrees(random_cache([20, 13], [17], [3, 3], 2, 8, reconstruct=False), 2, decoded=2)
    agrees(random_cache([20, 13, 8, 9], [7, 6, 5, 4], [3, 3], 1, 8, torch.bfloat16), 1, decoded=2)
