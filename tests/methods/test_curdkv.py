"""CurDKV's scores: shares of squared norms within blocks, by hand and against loops in float64."""

import pytest
import torch

from kvbench.methods import CUR, Eviction
from tests.support.tiny import random_layer

N = 37  # the last block has 5 tokens of 16


def by_loops(layer, leverage, local) -> torch.Tensor:
    """Scores [heads, n] without sinks, in float64."""
    squares = [x.double().square().sum(-1) for x in (layer.keys, layer.values)]
    shares = [torch.zeros_like(x) for x in squares]
    for share, square in zip(shares, squares, strict=True):
        if local is None:
            share[:] = square
            continue
        for start in range(0, layer.n, local):
            block = slice(start, start + local)
            share[:, block] = square[:, block] / square[:, block].sum(-1, keepdim=True)
    keys, values = shares
    scores = {"product": keys * values, "mean": (keys + values) / 2, "key": keys, "value": values}[leverage]
    return scores / scores.sum(-1, keepdim=True)


@pytest.mark.parametrize("leverage", ["product", "mean", "key", "value"])
@pytest.mark.parametrize("local", [16, None])
def test_scores_are_shares_in_the_norms_of_a_block(leverage, local):
    layer = random_layer(n=N)
    votes = CUR(leverage=leverage, local=local, sinks=0).votes(layer)
    torch.testing.assert_close(votes.double(), by_loops(layer, leverage, local), rtol=1e-5, atol=0)


def test_sinks_and_the_last_tokens_stay_and_of_the_others_the_largest():
    layer = random_layer(n=32)
    layer.keys[:, [9, 20]] *= 9
    layer.values[:, [9, 20]] *= 9
    scoring = CUR(sinks=2, window=3)
    kept = Eviction(scoring=scoring).select(layer, 0, 4, 7).indices.tolist()
    assert kept == [[0, 1, 9, 20, 29, 30, 31]] * 2 and scoring.minimum_budget == 6


def test_a_token_is_compared_with_its_block_alone():
    layer = random_layer(n=32)
    votes = CUR(sinks=0, leverage="key").votes(layer)
    layer.keys[:, :16] *= 100
    torch.testing.assert_close(CUR(sinks=0, leverage="key").votes(layer), votes)


def test_keys_and_values_of_zero_get_no_share_and_make_no_nan():
    layer = random_layer(n=20)
    layer.values[:] = 0
    assert CUR(sinks=0).votes(layer).tolist() == [[0.0] * 20] * 2
