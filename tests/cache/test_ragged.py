"""Ragged caches: heads of different lengths, none of them masked."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.ragged import RaggedLayer
from kvbench.cache.reserve_ratio import Kept

KV, GROUP, N, DIM = 3, 2, 12, 8
KEPT = [[0, 1, 5, 11], list(range(N)), []]  # per head; the last has nothing left of the prompt


def tensors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


@pytest.fixture
def layer():
    keys, values = tensors(KV, N, DIM), tensors(KV, N, DIM)
    chosen = torch.stack([torch.isin(torch.arange(N), torch.tensor(kept)) for kept in KEPT])
    held = sum(map(len, KEPT))
    return keys, values, RaggedLayer(keys, values, chosen, N, Kept(6, 2 * held, 2 * KV * N))


@pytest.mark.parametrize("steps", [[1, 1, 1], [3], [2, 1]])
def test_attention_is_that_of_a_full_cache_with_the_dropped_tokens_masked(layer, steps):
    keys, values, cache = layer
    for t in steps:
        new_keys, new_values, query = tensors(1, KV, t, DIM), tensors(1, KV, t, DIM), tensors(1, KV * GROUP, t, DIM)
        cache.update(new_keys, new_values)
        keys, values = torch.cat([keys, new_keys[0]], 1), torch.cat([values, new_values[0]], 1)
        length = keys.shape[1]
        seen = torch.ones(t, length, dtype=torch.bool).tril(length - t)[None].repeat(KV, 1, 1)
        for head, kept in enumerate(KEPT):
            seen[head, :, [i for i in range(N) if i not in kept]] = False
        logits = query[0].unflatten(0, (KV, GROUP)) @ keys[:, None].mT * 0.3
        weights = logits.masked_fill(~seen[:, None], float("-inf")).softmax(-1)
        expected = (weights @ values[:, None]).flatten(0, 1)
        assert_close(cache.attend(query, 0.3)[0], expected, atol=1e-5, rtol=1e-5)
    assert cache.get_seq_length() == N + sum(steps)


def test_bytes_are_those_of_the_tokens_that_are_left(layer):
    *_, cache = layer
    assert cache.nbytes == (4 + N + 0) * 2 * DIM * 4
    assert cache.kept.r1 == (4 + N) / (KV * N)
