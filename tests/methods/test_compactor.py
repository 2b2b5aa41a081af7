"""Compactor: both scores, their weight by the budget, and what always stays."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import AdaKV, Compactor, DecodeCompression, Eviction, LeverageScore, NonCausalAttention
from kvbench.prefill import LayerState, Needs, prefill
from tests.support.tiny import prompt, tiny_model

N = 60
PLAIN = Compactor(block=16, sketch=6)


@pytest.fixture(scope="module")
def layer() -> LayerState:
    return prefill(tiny_model(), prompt(N), Needs(window=N) | PLAIN.needs).layers[1]


def expected(layer: LayerState, weight: float) -> torch.Tensor:
    """Scores [2, N - 12] of the tokens between 8 sinks and a window of 4, from a layer of these alone."""
    leverage = LeverageScore(6).between(layer, 8, 4).double()
    inner = torch.stack(
        [NonCausalAttention(16).between(layer, 8, 4)[h * 3 : h * 3 + 3].mean(0) for h in (0, 1)]
    ).double()
    parts = [(x - x.mean()) / x.std() for x in (leverage, inner)]
    return weight * parts[0] + parts[1]


@pytest.mark.parametrize("weight", [0.0, 0.35, 1.0])
def test_scores_are_a_weighted_sum_of_both_standardised(layer, weight):
    votes = Compactor(weight, block=16, sketch=6).votes(layer)
    torch.testing.assert_close(votes[:, 8:-4].double(), expected(layer, weight), rtol=1e-4, atol=1e-4)
    assert votes[:, :8].isposinf().all() and not votes[:, -4:].any()


@pytest.mark.parametrize("budget", [13, 20, 45])
def test_the_weight_of_leverage_is_the_share_that_is_dropped(layer, budget):
    kept = Eviction(scoring=PLAIN).select(layer, 0, 4, budget).indices
    scores = expected(layer, 1 - budget / N)
    for head, own in zip(kept.tolist(), scores, strict=True):
        assert set(head) >= {*range(8), *range(N - 4, N)} and len(head) == budget
        inner = [token - 8 for token in head if 8 <= token < N - 4]
        others = [token for token in range(N - 12) if token not in inner]
        assert own[inner].min() > own[others].max() - 1e-4


def test_a_given_weight_keeps_the_order_of_the_votes_and_another_weight_another():
    layer = prefill(tiny_model(), prompt(N), PLAIN.needs).layers[0]
    given, other = (Eviction(scoring=Compactor(weight, block=16, sketch=6)) for weight in (0.0, 1.0))
    kept, others = (set(one.select(layer, 0, 4, 30).indices[0].tolist()) for one in (given, other))
    assert kept != others
    best = given.scoring.votes(layer)[0, :-4].topk(26).indices.tolist()
    assert kept == {*best, *range(N - 4, N)}


def test_heads_that_share_a_budget_have_weights_of_their_own(layer):
    chosen = Eviction(scoring=PLAIN, heads=AdaKV(alpha=0.2)).select(layer, 0, 4, 30)
    counts = chosen.chosen.sum(dim=1).tolist()
    for head, count in enumerate(counts):
        scores = expected(layer, 1 - count / N)[head]
        kept = chosen.chosen[head][8:-4]
        assert scores[kept].min() > scores[~kept].max() - 1e-4


def test_the_smallest_budget_and_scores_while_decoding():
    assert Eviction(scoring=PLAIN).minimum_budget == 13
    with pytest.raises(UserError, match="Compactor reads what only the prefill"):
        Eviction(scoring=PLAIN, decode_compression=DecodeCompression(every=8))
