"""How many tokens each head of each layer keeps, where the layers of a prompt decide together and where they do not."""

from dataclasses import dataclass

import pytest
import torch

from kvbench.methods import (
    AdaKV,
    Eviction,
    HeadBudgets,
    HeadKV,
    KNorm,
    LinearPyramid,
    PooledHeads,
    Preference,
    Pyramid,
    Random,
    SkipLayers,
    WholeHeads,
    WindowAttention,
)
from tests.support.config import SCORES
from tests.support.tiny import random_layer, random_state

SCORING = WindowAttention(8, 5)


@dataclass(frozen=True)
class FirstHead(HeadBudgets):
    """Budgets from outside, of one function: the first head gets a token of every other one."""

    def counts(self, ranked, tokens, window, layer):
        counts = torch.full((len(ranked),), tokens - window - 1)
        counts[0] += len(ranked)
        return counts


@pytest.mark.parametrize(
    "eviction",
    [Eviction(Preference(8), SCORING, heads=AdaKV()), Eviction(scoring=SCORING, heads=PooledHeads())],
    ids=["weights", "counts"],
)
def test_numbers_of_a_prompt_are_passed_and_no_part_is_made_or_checked_again(eviction, monkeypatch):
    state = random_state(3, window=8)
    monkeypatch.setattr(Eviction, "__post_init__", lambda self: pytest.fail("the eviction was made again"))
    given = eviction.for_prompt(state, 20)
    assert given.layerwise and not eviction.layerwise
    assert given.allocation is eviction.allocation and given.heads is eviction.heads
    for mine, theirs in zip(given.compress(state, 20), eviction.compress(state, 20), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine.tensors(), theirs.tensors(), strict=True))


def test_budgets_of_heads_are_one_function():
    (cache,) = Eviction(scoring=SCORING, heads=FirstHead()).compress(random_state(1, window=8), 20)
    assert cache.kept.per_head == (21, 19) and cache.kept.nominal == 20


@pytest.mark.parametrize("allocation", [Pyramid(), Pyramid(alloc="kvpress")])
def test_the_largest_layers_give_a_layer_without_a_token_one_each(allocation):
    assert allocation.tokens(2, 60, 0, 6) == [4, 3, 2, 2, 1, 0]
    assert Eviction(allocation, KNorm()).budgets.of_layers(2, 60, 6) == [3, 3, 2, 2, 1, 1]


class Around(KNorm):
    """The first and the last tokens of a prompt always stay, 32 of them."""

    def least(self, layer):
        return 32


@pytest.mark.parametrize("budget", [33, 40, 60])
def test_what_always_stays_in_a_layer_comes_from_the_others(budget):
    caches = Eviction(Pyramid(), Around()).compress(random_state(5, n=100), budget)
    kept = [cache.k.length for cache in caches]
    assert sum(kept) == 5 * budget and min(kept) == 32 and kept == sorted(kept, reverse=True)


PARTS = [
    {"allocation": Pyramid()},
    {"allocation": LinearPyramid()},
    {"heads": HeadKV(SCORES)},
    {"heads": WholeHeads(SCORES)},
]


@pytest.mark.parametrize("budget", [6, 30])
@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: type(*parts.values()).__name__)
def test_sinks_stay_in_every_head_of_every_layer(parts, budget):
    eviction, layers = Eviction(scoring=Random(sinks=4), **parts), random_state(4, n=64).layers
    masks = [eviction.select(layer, index, 4, budget).mask(layer) for index, layer in enumerate(layers)]
    assert all(mask[..., :4].all() for mask in masks)
    assert sum(int(mask.sum()) for mask in masks) <= 2 * 4 * budget


def test_a_layer_of_the_whole_prompt_gives_what_sinks_need_in_the_others():
    caches = Eviction(Pyramid(), Random(sinks=4)).compress(random_state(4, n=10), 5)
    assert [cache.k.length for cache in caches] == [6, 6, 4, 4]


@pytest.mark.parametrize("allocation", [Pyramid(), LinearPyramid()])
def test_sinks_stay_while_decoding(allocation):
    eviction, (layer,) = Eviction(allocation, Random(sinks=4)), random_state(1, n=64).layers
    assert set(range(4)) <= {*eviction.keep(layer, 3, 4, 6, 64, "position")[0].tolist()}


def test_layers_that_are_to_stay_whole_give_nothing():
    budgets = Eviction(SkipLayers([0]), Around()).budgets
    assert [budgets.of_layer(random_layer(n=100), index, 3, 20) for index in range(3)] == [100, 32, 32]


def test_shares_rounded_down_to_nothing_are_a_token():
    assert LinearPyramid().tokens(1, 10, 0, 6) == [1, 1, 1, 0, 0, 0]
    assert Eviction(LinearPyramid(), KNorm()).budgets.of_layers(1, 10, 6) == [1] * 6


def test_a_fraction_of_a_token_is_left_to_the_heads():
    assert Eviction(scoring=KNorm(), heads=PooledHeads()).budgets.of_layers(2.5, 10, 3) == [2.5] * 3
