"""NACL: the best tokens by proxy attention, and a draw from the others by the softmax of that attention."""

import math
from itertools import permutations

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import NACL, AdaKV, DecodeCompression, Eviction
from tests.support.tiny import random_layer

N, WINDOW, BUDGET = 60, 8, 31  # 31 = 8 in the window, 4 sinks, 19 chosen


def kept(scoring: NACL, layer) -> torch.Tensor:
    return Eviction(scoring=scoring).select(layer, 0, 2, BUDGET).indices


def summed(layer) -> torch.Tensor:
    """Causal attention of the last queries, mean over a group: float64 [num_key_value_heads, n - window]."""
    heads, n = layer.num_key_value_heads, layer.n
    queries = layer.queries[:, -WINDOW:].double().unflatten(0, (heads, -1))
    logits = queries @ layer.keys[:, None].double().mT * layer.keys.shape[2] ** -0.5
    later = torch.arange(n) > torch.arange(n - WINDOW, n)[:, None]
    weights = logits.masked_fill(later, -math.inf).softmax(dim=-1)
    return weights.sum(dim=2).mean(dim=1)[:, : n - WINDOW]


def test_sinks_window_and_the_best_12_of_19_stay_and_7_others():
    layer = random_layer(n=N)
    for chosen, scores in zip(kept(NACL(WINDOW), layer), summed(layer), strict=True):
        chosen = set(chosen.tolist())
        assert {0, 1, 2, 3, *range(N - WINDOW, N)} <= chosen and len(chosen) == BUDGET
        best = {4 + index for index in scores[4:].argsort(descending=True)[:12].tolist()}
        assert best <= chosen and len({token for token in chosen if 4 <= token < N - WINDOW} - best) == 7


def test_without_a_random_share_the_best_stay_and_with_one_seeds_and_layers_differ():
    layer = random_layer(n=N)
    best = kept(NACL(WINDOW, random_share=0), layer)
    expected = 4 + summed(layer)[:, 4:].argsort(descending=True)[:, :19]
    assert [set(row.tolist()) - {0, 1, 2, 3, *range(N - WINDOW, N)} for row in best] == [
        set(row.tolist()) for row in expected
    ]
    drawn = kept(NACL(WINDOW), layer)
    assert torch.equal(drawn, kept(NACL(WINDOW), layer))
    assert not torch.equal(drawn, kept(NACL(WINDOW, seed=1), layer))
    layer.index += 1
    assert not torch.equal(drawn, kept(NACL(WINDOW), layer))


def test_pairs_are_drawn_with_the_probabilities_of_a_draw_without_replacement():
    layer, scores = random_layer(n=N), torch.tensor([[2.0, 0.0, 1.0, 0.5]])
    p = scores[0].double().softmax(0).tolist()
    expected = {pair: p[pair[0]] * p[pair[1]] / (1 - p[pair[0]]) for pair in permutations(range(4), 2)}
    counts, draws = dict.fromkeys(expected, 0), 4000
    order = scores.argsort(descending=True)
    for seed in range(draws):
        scoring = NACL(WINDOW, sinks=0, random_share=1, seed=seed)
        counts[tuple(scoring.order(order, scores, 2, WINDOW, 0, layer)[0, :2].tolist())] += 1
    for pair, probability in expected.items():
        assert abs(counts[pair] / draws - probability) < 5 * (probability * (1 - probability) / draws) ** 0.5


def test_what_heads_hold_for_certain_stays_first():
    layer = random_layer(n=N)
    scoring = NACL(WINDOW, random_share=1)
    scores = summed(layer).float()
    order = scores.argsort(descending=True)
    assert torch.equal(scoring.order(order, scores, 10, WINDOW, 6, layer)[:, :6], order[:, :6])
    Eviction(scoring=scoring, heads=AdaKV()).select(layer, 0, 2, BUDGET)


def test_it_does_not_score_while_decoding():
    with pytest.raises(UserError, match="NACL"):
        Eviction(scoring=NACL(), decode_compression=DecodeCompression())
