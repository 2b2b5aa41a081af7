"""HeadKV's budgets of heads: the released formula, and what becomes of shares larger than the prompt."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.methods import Eviction, HeadKV, Pyramid, WindowAttention
from kvbench.methods.allocation.base import water_filled
from tests.support.config import SCORES
from tests.support.tiny import random_state

SCORING = WindowAttention(8, 5)


def state(n=60):
    return random_state(4, n=n)


def sizes(method, n, budget):
    return torch.stack([method.select(layer, i, 4, budget).chosen.sum(1) for i, layer in enumerate(state(n).layers)])


@given(
    beta=st.sampled_from([1.005, 1.2, 2.0, 10.0]),
    granularity=st.sampled_from(["kv_head", "query_head"]),
    n=st.integers(20, 90),
    data=st.data(),
)
def test_a_models_budget_is_spent_to_the_token(beta, granularity, n, data):
    budget = data.draw(st.integers(9, n - 1))
    heads = 2 if granularity == "kv_head" else 6
    counts = sizes(Eviction(scoring=SCORING, granularity=granularity, heads=HeadKV(SCORES, beta)), n, budget)
    assert counts.sum() == 4 * heads * budget and counts.max() <= n and counts.min() >= 8
    least = budget - 8 - (budget - 8) // beta
    assert counts.min() >= 8 + int(least)


def test_wasted_shares_are_those_of_the_released_formula():
    scores, c = json.loads(Path(SCORES).read_text())["scores"], 40
    every = [x for row in scores for x in row]
    q = c // 1.2
    method = Eviction(scoring=SCORING, granularity="query_head", heads=HeadKV(SCORES, 1.2, "waste"))
    expected = [[min(round(x / sum(every) * q * 24 + c - q), 52) + 8 for x in row] for row in scores]
    assert sizes(method, 60, 48).tolist() == expected
    selection = method.select(state().layers[1], 1, 4, 48)
    assert selection.nominal >= sum(expected[1]) / 6 > selection.nominal - 1
    assert selection.longest(state().layers[1]) == max(expected[1])


@pytest.mark.parametrize("beta, pool, base", [(1.005, 119, 1), (1.2, 100, 20), (2.0, 60, 60), (10.0, 12, 108)])
def test_the_pool_by_hand(beta, pool, base):
    assert (120 // beta, 120 - 120 // beta) == (pool, base)


def test_a_beta_above_the_budget_is_snapkv_in_every_head():
    for granularity in ("kv_head", "query_head"):
        plain = Eviction(scoring=SCORING, granularity=granularity)
        headkv = Eviction(scoring=SCORING, granularity=granularity, heads=HeadKV(SCORES, beta=1000))
        for index, layer in enumerate(state().layers):
            expected = plain.select(layer, index, 4, 20).mask(layer)
            assert torch.equal(headkv.select(layer, index, 4, 20).mask(layer), expected)


def test_what_is_beyond_a_share_is_shared_by_the_others():
    assert water_filled([900, 499, 10, 10], 500) == pytest.approx([500, 500, 209.5, 209.5])
    assert water_filled([1.0, 2.0], 5) == [1.0, 2.0] and water_filled([9, 1], 5) == [5, 5]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Eviction(heads=HeadKV(SCORES), allocation=Pyramid()), "HeadKV divides the budget between layers, too"),
        (lambda: Eviction(scoring=SCORING, heads=HeadKV()).compress(state(), 20), "HeadKV needs scores_file=FILE"),
        (lambda: HeadKV(SCORES, beta=0.5), "beta=0.5"),
    ],
)
def test_what_has_no_meaning_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
    assert not Eviction(heads=HeadKV(SCORES)).divisible


def test_negative_scores_are_no_shares(tmp_path):
    file = tmp_path / "scores.json"
    for scores in ([[0, -1]], [[0, 0]]):
        file.write_text(
            json.dumps({"kind": "head scores", "over": "kv_heads", "scores": scores, "model": "", "about": ""})
        )
        with pytest.raises(UserError, match="HeadKV needs scores that are not negative, and not all 0"):
            HeadKV(str(file))
