"""TOVA: the cache of the released code stays at its budget and drops what the current query attends to least."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import TOVA, FullKV, Kivi
from kvbench.prefill import Needs
from tests.support.tiny import random_layer, random_state


def plain_steps(keys, values, positions, tokens, budget, scaling):
    """The released rule, token by token, with a list of stored tokens: outputs, and positions after each step."""
    store = list(zip(positions, keys.unbind(1), values.unbind(1), strict=True))
    outputs, kept = [], []
    for position, (query, key, value) in tokens:
        store.append((position, key[:, 0], value[:, 0]))
        k, v = torch.stack([row[1] for row in store], 1), torch.stack([row[2] for row in store], 1)
        group = query.shape[0] // k.shape[0]
        attention = (query @ k.repeat_interleave(group, 0).mT * scaling).softmax(-1)[:, 0]  # [heads, len]
        outputs.append((attention[:, None] @ v.repeat_interleave(group, 0))[:, 0])
        if len(store) > budget:
            scores = attention.mean(0)
            lowest, next_one = scores.topk(2, largest=False).values
            assert next_one - lowest > 1e-5 * lowest, "rounding could drop another token"
            store.pop(int(scores.argmin()))
        kept.append(sorted(row[0] for row in store))
    return outputs, kept


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_each_step_drops_the_token_with_the_least_attention(dtype):
    layer = random_layer(n=30, window=1)
    budget, scaling = 12, layer.scaling
    layer.keys, layer.values = layer.keys.to(dtype), layer.values.to(dtype)
    cache = TOVA(decode="evict").compress_layer(layer, 0, 4, budget)
    positions = cache.positions.view[0, :, 0].tolist()
    tokens = [
        (30 + step, (torch.randn(6, 1, 8).to(dtype), torch.randn(2, 1, 8).to(dtype), torch.randn(2, 1, 8).to(dtype)))
        for step in range(20)
    ]
    raw = [(position, tuple(x.double() for x in parts)) for position, parts in tokens]
    outputs, kept = plain_steps(cache.k.view[0].double(), cache.v.view[0].double(), positions, raw, budget, scaling)
    for (_, (query, key, value)), output, stays in zip(tokens, outputs, kept, strict=True):
        cache.update(key[None], value[None])
        out = cache.attend(query[None], scaling)
        tolerance = 1e-5 if dtype == torch.float64 else 2e-2
        torch.testing.assert_close(out[0, :, 0].double(), output, rtol=tolerance, atol=tolerance)
        stored = cache.positions.view[0, :, 0].tolist()
        stored = [p for slot, p in enumerate(stored) if cache.free is None or slot != int(cache.free)]
        assert sorted(stored) == stays and len(stays) <= budget


def test_a_budget_beyond_prompt_and_answer_is_full_kv():
    state = random_state(3, n=20, window=1)
    mine, full = TOVA(decode="evict").compress(state, 40), FullKV().compress(state, 40)
    for _ in range(15):
        key, value, query = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8), torch.randn(1, 6, 1, 8)
        for one, other in zip(mine, full, strict=True):
            one.update(key, value)
            other.update(key, value)
            assert one.attend(query, 0.3).equal(other.attend(query, 0.3))


def test_what_cannot_drop_single_tokens_is_refused():
    with pytest.raises(UserError, match="dense, unfolded storage and granularity=layer, not Kivi and layer"):
        TOVA(decode="evict", storage=Kivi())
    with pytest.raises(UserError, match="not Dense and kv_head"):
        TOVA(decode="evict", granularity="kv_head")
    assert TOVA().needs == Needs(window=1) and TOVA().minimum_budget == 1
