"""Finch: attention of the question weighted by position, and equal shares of chunks."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.errors import UserError
from kvbench.methods import AdaKV, DecodeCompression, Eviction, Finch
from kvbench.methods.finch import share_in_chunk
from tests.support.tiny import random_layer

N, WINDOW = 60, 8


def plain_scores(layer):
    """Mean over the window and a group of attention times position, float64 [2, n - window]."""
    queries = layer.queries[:, -WINDOW:].double().unflatten(0, (2, 3))
    logits = queries @ layer.keys[:, None].double().mT * layer.scaling
    positions = torch.arange(N - WINDOW, N)
    weights = logits.masked_fill(torch.arange(N) > positions[:, None], -torch.inf).softmax(dim=-1)
    return (weights * positions[:, None]).mean(dim=2).mean(dim=1)[:, : N - WINDOW]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_scores_are_attention_times_the_position_of_the_query(dtype):
    layer = random_layer(n=N, window=WINDOW, dtype=dtype)
    scores = Eviction(scoring=Finch(WINDOW)).scores(layer, WINDOW)
    assert_close(scores.double(), plain_scores(layer), rtol=1e-4, atol=1e-6)


def test_without_chunks_the_best_of_the_prompt_stay_with_the_question():
    layer = random_layer(n=N, window=WINDOW)
    kept = Eviction(scoring=Finch(WINDOW)).select(layer, 0, 1, 20).indices
    best = plain_scores(layer).topk(12).indices.sort().values
    assert torch.equal(kept, torch.cat([best, torch.arange(N - WINDOW, N).expand(2, -1)], dim=1))


def test_each_chunk_keeps_the_same_share_and_its_best():
    layer = random_layer(n=N, window=WINDOW)
    method = Eviction(scoring=Finch(WINDOW, chunk=13))  # 52 tokens before the window: 4 chunks
    for row, scores in zip(method.select(layer, 0, 1, 20).indices.tolist(), plain_scores(layer), strict=True):
        best = [13 * at + place for at in range(4) for place in scores[13 * at :][:13].topk(3).indices.tolist()]
        assert row == [*sorted(best), *range(N - WINDOW, N)]
    # one token more goes to the earliest chunk, and what is kept at a budget is kept at larger ones
    one, more = (method.select(layer, 0, 1, budget).indices for budget in (20, 21))
    for few, row in zip(one.tolist(), more.tolist(), strict=True):
        (added,) = set(row) - set(few)
        assert added < 13


def test_places_in_chunks_by_hand():
    scores = torch.tensor([[1.0, 5.0, 5.0, 2.0, 0.0, 9.0, 3.0, 4.0]])  # chunks of 3, 3 and 2
    expected = [[5 / 6, 1 / 6, 3 / 6, 3 / 6, 5 / 6, 1 / 6, 3 / 4, 1 / 4]]
    assert_close(share_in_chunk(scores, 3), torch.tensor(expected, dtype=torch.float64))


def test_what_heads_hold_for_certain_stays_first():
    layer = random_layer(n=N, window=WINDOW)
    scoring = Finch(WINDOW, chunk=13)
    scores = Eviction(scoring=scoring).scores(layer, WINDOW)
    order = scores.argsort(descending=True, stable=True)
    found = scoring.order(order, scores, 20, WINDOW, 6, layer)
    assert torch.equal(found[:, :6].sort().values, order[:, :6].sort().values)
    assert torch.equal(found.sort().values, torch.arange(N - WINDOW).expand(2, -1))
    Eviction(scoring=scoring, heads=AdaKV()).select(layer, 0, 2, 20)


def test_chunks_are_of_a_prompt():
    Eviction(scoring=Finch(), decode_compression=DecodeCompression())
    with pytest.raises(UserError, match="Finch"):
        Eviction(scoring=Finch(chunk=16), decode_compression=DecodeCompression())
