"""The operators of codebook caches beside their torch references: the same numbers and decisions."""

import copy

import torch
from torch.testing import assert_close

from kvbench.ops.operator import Kernels, use_kernels

# of sums in another order
TOLERANCE = {torch.float32: {"atol": 3e-6, "rtol": 3e-6}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}


def attention_agrees(cache, group, decoded=0, kernels: Kernels = "triton"):
    """Attention over the cache, after `decoded` more tokens."""
    head_dim, dtype = cache.raw.keys.shape[1], cache.raw.keys.dtype
    generator = torch.Generator().manual_seed(1)
    for _ in range(decoded):
        key, value = torch.randn(2, 1, len(cache.raw.windows), 1, head_dim, generator=generator).to(dtype)
        cache.update(key, value)
    query = torch.randn(1, len(cache.places) * group, 1, head_dim, generator=generator).to(dtype)
    with use_kernels("torch"):
        expected = cache.attend(query, 0.2)
    with use_kernels(kernels):
        found = cache.attend(query, 0.2)
    assert found.dtype == dtype
    assert_close(found.float(), expected.float(), **TOLERANCE[dtype])


def append_agrees(cache, steps=4, kernels: Kernels = "triton"):
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
        with use_kernels(kernels):
            twin.update(keys, values)
    for mine, other in ((cache.k, twin.k), (cache.v, twin.v)):
        assert other.sizes.equal(mine.sizes) and other.references.equal(mine.references)
        tolerance = {torch.float32: 1e-6, torch.bfloat16: 1e-2}[mine.entries.dtype]
        assert_close(other.entries, mine.entries, atol=tolerance, rtol=tolerance)
        if mine.magnitudes is not None:
            assert_close(other.magnitudes, mine.magnitudes, atol=tolerance, rtol=tolerance)
    assert sum(cache.v.sizes.tolist()) < sum(cache.v.capacities)  # some found an entry
