"""How many tokens each head of each layer keeps, where the layers of a prompt decide together and where they do not."""

from dataclasses import dataclass

import pytest
import torch

from kvbench.methods import AdaKV, Eviction, HeadBudgets, PooledHeads, Preference, WindowAttention
from tests.support.tiny import random_state

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
