"""Coding decoded vectors in Triton: the reference's decisions."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops.operator import use_kernels
from tests.support.codebook_caches import random_cache
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))


def agrees(cache, steps=4):
    """After tokens of which some are near an entry, others near the token before, others new."""
    twin = copy.deepcopy(cache)
    heads, (_, head_dim) = len(cache.raw.windows), cache.raw.keys.shape
    generator = torch.Generator().manual_seed(2)
    pair = torch.randn(2, 1, heads, 1, head_dim, generator=generator)
    for step in range(steps):
        if step % 2:
            pair = 1.5 * pair
            pair[:, :, -1] = pair[:, :, 0]  # heads with one book: the last one meets the first one's new entry
        else:
            pair = torch.randn(2, 1, heads, 1, head_dim, generator=generator)
        keys, values = pair.to(cache.raw.keys.dtype)
        with use_kernels("torch"):
            cache.update(keys, values)
        with use_kernels("triton"):
            twin.update(keys, values)
    for mine, other in ((cache.k, twin.k), (cache.v, twin.v)):
        assert other.sizes.equal(mine.sizes) and other.references.equal(mine.references)
        tolerance = {torch.float32: 1e-6, torch.bfloat16: 1e-2}[mine.entries.dtype]
        assert_close(other.entries, mine.entries, atol=tolerance, rtol=tolerance)
        if mine.magnitudes is not None:
            assert_close(other.magnitudes, mine.magnitudes, atol=tolerance, rtol=tolerance)
    assert sum(cache.v.sizes.tolist()) < sum(cache.v.capacities)  # some found an entry


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_stream_finds_the_nearest_entry_of_its_book_or_adds_one(dtype):
    agrees(random_cache([9, 0, 5], [40, 0, 3], [1, 1, 1], 2, 8, dtype))


def test_streams_of_one_book_find_what_the_ones_before_them_added():
    agrees(random_cache([9, 4, 5], [17], [1, 1, 1], 2, 8))


def test_query_heads_with_their_own_books_code_the_vector_of_their_kv_head():
    agrees(random_cache([9, 4, 5, 2], [7, 6, 5, 4], [1, 1], 1, 8), steps=2)


def test_whole_vectors_are_entries_where_no_magnitudes_are_kept():
    agrees(random_cache([9, 4], [7, 6], [1, 1], 1, 8, reconstruct=False))


def test_books_of_several_splits_are_searched_and_references_have_their_width():
    agrees(random_cache([9, 4], [300, 70000], [1, 1], 1, 8), steps=2)


def test_theta_of_one_finds_nothing():
    cache = random_cache([9], [7], [1], 1, 8, bound=math.inf)
    with use_kernels("triton"):
        for _ in range(3):
            cache.update(torch.ones(1, 1, 1, 8), torch.ones(1, 1, 1, 8))
    assert cache.v.sizes.tolist() == [10]
