"""Attention Matching: which keys stay, and the biases and values that stand for the others."""

import math
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.methods import (
    AdaKV,
    DecodeCompression,
    Eviction,
    Matched,
    MatchingPursuit,
    ReferenceAttention,
    Selection,
)
from kvbench.ops.softmax import Softmax
from tests.support.batch_layers import batch_layer
from tests.support.tiny import random_layer

N, SINKS, WINDOW = 60, 2, 6
SCORING = ReferenceAttention(N, WINDOW, SINKS)
STORAGE = Matched(N, SINKS, WINDOW, ridge=1e-12)
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 5e-2}


def layer_of_pairs(dtype: torch.dtype):
    """A layer whose tokens between sinks and window are there twice, with values of their own, and what keeps one."""
    layer = random_layer(n=N, window=N, dtype=dtype, observed=False)
    layer.keys[:, SINKS + 1 : N - WINDOW : 2] = layer.keys[:, SINKS : N - WINDOW : 2]
    kept = [*range(SINKS), *range(SINKS, N - WINDOW, 2), *range(N - WINDOW, N)]
    return layer, Selection(torch.tensor([kept]), len(kept))


def step(layer, caches):
    """One more token for all caches and what they answer."""
    query, key, value = (torch.randn(1, heads, 1, 8).to(layer.keys.dtype) for heads in (6, 2, 2))
    for cache in caches:
        cache.update(key, value)
    return [cache.attend(query, layer.scaling) for cache in caches]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_one_of_two_equal_keys_counts_twice_with_the_mean_of_their_values(dtype):
    torch.manual_seed(0)
    layer, selection = layer_of_pairs(dtype)
    cache = STORAGE.store(layer, selection)
    fitted = slice(SINKS, selection.indices.shape[1] - WINDOW)
    assert_close(
        cache.bias[:, fitted].float(),
        torch.full_like(cache.bias[:, fitted], math.log(2)).float(),
        atol=TOLERANCE[dtype],
        rtol=0,
    )
    pairs = layer.values[:, SINKS : N - WINDOW].float().unflatten(1, (-1, 2)).mean(dim=2)
    assert_close(cache.v.view[0, :, fitted].float(), pairs, atol=TOLERANCE[dtype] * 10, rtol=0)
    whole = DenseLayer(layer.keys, layer.values, N, selection.kept(layer))
    for _ in range(5):
        ours, theirs = step(layer, [cache, whole])
        assert_close(ours, theirs, atol=TOLERANCE[dtype], rtol=0)


def test_sinks_and_last_tokens_stay_as_they_are():
    layer = random_layer(n=N, window=N)
    selection = Eviction(scoring=SCORING).select(layer, 0, 1, 20)
    cache = STORAGE.store(layer, selection)
    for part in (slice(SINKS), slice(20 - WINDOW, 20)):
        assert not cache.bias[:, part].any()
        assert torch.equal(cache.v.view[0, :, part], selection.of(layer.values)[:, part])
    assert torch.equal(cache.k.view[0], selection.of(layer.keys))
    assert cache.bias.abs().max() <= 3.0


def test_fitted_caches_answer_the_references_better_than_kept_values_do():
    layer = random_layer(n=N, window=N)
    layer.queries = 2 * layer.queries
    errors = []
    for storage in (STORAGE, None):
        options = {} if storage is None else {"storage": storage}
        cache = Eviction(scoring=SCORING, **options).compress_layer(layer, 0, 1, 24)
        whole = DenseLayer(layer.keys, layer.values, N, Selection.everything(layer).kept(layer))
        answers = [
            torch.cat([one.attend(layer.queries[None, :, at : at + 1].contiguous(), layer.scaling) for at in range(N)])
            for one in (cache, whole)
        ]
        errors.append((answers[0] - answers[1]).norm() / answers[1].norm())
    assert errors[0] < 0.6 * errors[1]


def test_scores_are_root_mean_squares_of_attention_over_what_is_replaced():
    layer = random_layer(n=N, window=N)
    keys, queries = layer.keys[:, SINKS : N - WINDOW].double(), layer.queries.double().unflatten(0, (2, 3))
    weights = (queries.flatten(1, 2) @ keys.mT * layer.scaling).softmax(dim=-1)  # [kv heads, group · n, between]
    scores = Eviction(scoring=SCORING).scores(layer, WINDOW)
    assert scores[:, :SINKS].isposinf().all()
    assert_close(scores[:, SINKS:].double(), weights.square().mean(dim=1).sqrt(), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_pursued_keys_are_beside_sinks_and_window(granularity):
    layer = random_layer(n=N, window=N)
    scoring = MatchingPursuit(N, WINDOW, SINKS, step=1)
    for row in Eviction(scoring=scoring, granularity=granularity).select(layer, 0, 1, 20).indices.tolist():
        assert {*range(SINKS), *range(N - WINDOW, N)} <= {*row} and len({*row}) == 20


def test_pursuit_keeps_what_heads_hold_for_certain_and_serves_heads_of_unequal_budgets():
    layer, scoring = random_layer(n=N, window=N), MatchingPursuit(N, WINDOW, SINKS)
    scores = Eviction(scoring=scoring).scores(layer, WINDOW)
    order = scores.argsort(descending=True, stable=True)
    found = scoring.order(order, scores, torch.tensor([12, 20]), WINDOW, 8, layer)
    assert torch.equal(found[:, :8], order[:, :8])
    assert torch.equal(found.sort(dim=1).values, order.sort(dim=1).values)
    Eviction(scoring=scoring, heads=AdaKV()).select(layer, 0, 2, 20)


@pytest.mark.parametrize("rule", [0.4, Softmax(0.4, 5.0, torch.linspace(-1, 1, 6))], ids=["plain", "bent"])
def test_a_block_of_tokens_is_one_token_after_the_other_and_a_batch_is_each_alone(rule):
    layer = random_layer(n=N, window=N)
    layer.scaling = rule
    query, key, value = (torch.randn(1, heads, 3, 8) for heads in (6, 2, 2))

    def made(budget: int):
        return Eviction(scoring=SCORING, storage=STORAGE).compress_layer(layer, 0, 1, budget)

    block, single, batch = made(20), made(20), batch_layer([made(20), made(30)])
    block.update(key, value)
    batch.update(key.expand(2, -1, -1, -1), value.expand(2, -1, -1, -1))
    together = block.attend(query, rule)
    assert_close(batch.attend(query.expand(2, -1, -1, -1), rule)[:1], together)
    for at in range(3):
        now = slice(at, at + 1)
        single.update(key[:, :, now], value[:, :, now])
        logits = query[0, :, now] @ single.k.view[0].repeat_interleave(3, 0).mT * 0.4
        if isinstance(rule, Softmax):
            logits = 5.0 * (logits / 5.0).tanh()
        logits[..., :20] += single.bias.repeat_interleave(3, 0)[:, None]
        if isinstance(rule, Softmax):
            logits = torch.cat([logits, rule.sinks[:, None, None]], dim=-1)
        weights = logits.softmax(dim=-1)[..., : 21 + at]
        expected = weights @ single.v.view[0].repeat_interleave(3, 0)
        assert_close(single.attend(query[:, :, now], rule)[0], expected)
        assert_close(together[0, :, now], expected)


def test_a_bias_is_one_more_number_of_each_kept_token():
    layer = random_layer(n=N, window=N)
    cache = Eviction(scoring=SCORING, storage=STORAGE).compress_layer(layer, 0, 1, 20)
    assert cache.nbytes == cache.filled_bytes == 2 * 20 * (8 + 8 + 1) * 4
    assert cache.kept.r3 == 17 / 16
    step(layer, [cache])
    assert cache.filled_bytes == 2 * (20 * 17 + 16) * 4


def test_what_everything_or_nothing_stands_for_is_not_fitted():
    layer = random_layer(n=N, window=N)
    assert type(STORAGE.store(layer, Selection.everything(layer))) is DenseLayer
    for kept in ([*range(SINKS), *range(N - WINDOW, N)], [*range(1, N)]):
        cache = STORAGE.store(layer, Selection(torch.tensor([kept]), len(kept)))
        assert not cache.bias.any() and torch.equal(cache.v.view[0], layer.values[:, kept])


@pytest.mark.parametrize(("dtype", "scale"), list(product([torch.float16, torch.bfloat16], [1, 8])), ids=str)
def test_a_few_references_and_keys_of_large_products_leave_finite_numbers(dtype, scale):
    layer = random_layer(n=N, window=N, dtype=dtype)
    layer.keys = layer.keys * scale
    storage = Matched(3, SINKS, WINDOW)  # 9 queries for 40 keys
    cache = Eviction(scoring=MatchingPursuit(3, WINDOW, SINKS), storage=storage).compress_layer(layer, 0, 1, 50)
    assert cache.bias.isfinite().all() and cache.v.view.isfinite().all()


def test_refused():
    for part in (Matched, MatchingPursuit):
        with pytest.raises(UserError, match=r"least_bias=1.0 is above most_bias=0.0"):
            part(least_bias=1.0, most_bias=0.0)
        with pytest.raises(UserError, match=r"most_bias=1000.0 must be a number .* -80"):
            part(most_bias=1000.0)
    with pytest.raises(UserError, match="Matched holds the same number of tokens in every head"):
        Eviction(storage=Matched(), heads=AdaKV())
    with pytest.raises(UserError, match="ReferenceAttention"):
        Eviction(scoring=ReferenceAttention(), decode_compression=DecodeCompression())
