"""Blocks of tokens after the prompt: every cache reads them as it reads single tokens."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.evaluation.decode import batched, read
from tests.support.batch_layers import batch_layer
from tests.support.every_method import HEAD_DIM, PRUNED, model, setting, state
from tests.support.representatives import CACHES, KINDS, every_third
from tests.support.tiny import prompt

N, BUDGET, T, HEADS, KV_HEADS = 60, 40, 7, 6, 2


def caches(name: str, dtype: torch.dtype = torch.float32):
    return setting(name, None, BUDGET).method.compress(state(N, dtype), BUDGET)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float32) for name in CACHES if name not in PRUNED),
        *every_third((name, torch.bfloat16) for name in KINDS if name not in PRUNED),
    ],
    ids=str,
)
def test_in_a_batch_a_block_is_what_single_tokens_are_alone(name, dtype):
    """Beside FullKV, which takes blocks; the bytes are counted once for each step that the cache makes."""
    full, rows, alone = (caches(each, dtype) for each in ("full", name, name))
    generator = torch.Generator().manual_seed(0)
    exact = 1e-5 if dtype == torch.float32 else 2e-2
    for beside, row, single in zip(full, rows, alone, strict=True):
        batch = batch_layer([beside, row])
        for t in (T, 1, 2):
            query, keys, values = (
                torch.randn(1, heads, t, HEAD_DIM, generator=generator).to(dtype)
                for heads in (HEADS, KV_HEADS, KV_HEADS)
            )
            batch.update(keys.repeat(2, 1, 1, 1), values.repeat(2, 1, 1, 1))
            out = batch.attend(query.repeat(2, 1, 1, 1), HEAD_DIM**-0.5)[1:]
            expected, counted = [], []
            for one in range(t):
                token = slice(one, one + 1)
                single.update(keys[:, :, token], values[:, :, token])
                counted.append((single.filled_bytes, single.read_bytes))
                expected.append(single.attend(query[:, :, token], HEAD_DIM**-0.5))
            assert_close(out, torch.cat(expected, dim=2), atol=exact, rtol=exact)
            counts = [step[:2] for step in batch.counted[1]]
            assert counts == (counted[-1:] if row.takes_blocks else counted) and len(batch.counted[0]) == 1
    assert [one.seen for one in alone] == [N + T + 3] * len(alone)


@pytest.mark.parametrize("name", ["kivi", "quest", "rkv", "spindle"])
def test_a_model_reads_a_hidden_question_as_token_by_token(name):
    ids = prompt(T, seed=3)
    together = read(model(), batched([caches("full"), caches(name)]), ids)
    for row, kind in enumerate(("full", name)):
        single = batched([caches(kind)])
        for token in ids.split(1):
            last = read(model(), single, token)
        assert_close(together[row : row + 1], last, atol=2e-3, rtol=1e-3)  # logits of up to 12, of random keys
    alone = read(model(), batched([caches(name)]), ids)
    assert_close(together[1:], alone, atol=2e-3, rtol=1e-3)


def test_rows_that_leave_the_batch_take_nothing_of_the_others_along():
    """A row that reads one by one may be followed by one that takes blocks."""
    names = ["full", "quest", "full", "kivi"]
    cache = batched([caches(name) for name in names])
    cache.keep([1, 2])
    assert [layer.blocks for layer in cache.layers] == [[False, True]] * len(cache.layers)
    read(model(), cache, prompt(T, seed=3))
    assert [counts.passes for counts in cache.sequences] == [T, 1]
