"""Attention inside blocks against a plain loop in float64."""

import pytest
import torch

from kvbench.ops.block_sums import block_sums


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize(("n", "block"), [(40, 8), (37, 8), (5, 8), (9, 1), (0, 4)])
@pytest.mark.parametrize("filled", [False, True])
def test_every_query_of_a_block_attends_to_all_its_keys(kv_heads, n, block, filled):
    generator = torch.Generator().manual_seed(n)
    queries, keys = (torch.randn(heads, n, 16, generator=generator) for heads in (6, kv_heads))
    expected = torch.zeros(6, n, dtype=torch.float64)
    for head in range(6):
        own = keys[head // (6 // kv_heads)].double()
        for query in range(-(-n // block) * block if filled else n):
            start = query // block * block
            logits = own[start : start + block] @ (
                queries[head, query].double() if query < n else torch.zeros(16).double()
            )
            empty = block - len(logits) if filled else 0
            weights = logits.exp() / (logits.exp().sum() + empty)
            expected[head, start : start + block] += weights
    torch.testing.assert_close(block_sums(queries, keys, block, filled).double(), expected, rtol=1e-4, atol=1e-5)
