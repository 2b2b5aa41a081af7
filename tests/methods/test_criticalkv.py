"""CriticalKV's two stages, over any scoring and under budgets of heads."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.methods import (
    NACL,
    AdaKV,
    ColumnSums,
    CriticalKV,
    Eviction,
    ExpectedAttention,
    Finch,
    KeyDiff,
    KNorm,
    Scoring,
    WindowAttention,
)
from kvbench.methods.heads.base import LayerBudget
from kvbench.prefill import Needs
from tests.support.tiny import random_layer

BASE = WindowAttention(8, 5)


@dataclass
class Given(Scoring):
    """The scores of the first KV head."""

    scores: tuple = (0.5, 0.3, 0.1, 0.06, 0.04)
    per_query_head = False

    def protected(self, budget):
        return 0

    def votes(self, layer):
        return torch.tensor([self.scores])


def test_the_two_stages_by_hand():
    layer = random_layer(1, 1, 5)
    layer.value_output_norm = torch.tensor([[1.0, 1, 1, 3, 6]])
    plain, critical = (Eviction(scoring=scoring).select(layer, 0, 1, 3) for scoring in (Given(), CriticalKV(Given())))
    assert plain.indices.tolist() == [[0, 1, 2]] and critical.indices.tolist() == [[0, 1, 4]]
    assert CriticalKV(Given()).needs == Needs(value_output_norm=True)


def test_a_window_beyond_the_first_stage_stays_whatever_its_values():
    """The released code multiplies the scores of such a window's tokens and may drop them."""
    layer = random_layer(4, 2, 100)
    layer.value_output_norm[:, -8:] = 1e-6
    kept = Eviction(scoring=CriticalKV(WindowAttention(32))).select(layer, 0, 1, 40).mask(layer)
    assert kept[..., -32:].all()


@given(
    heads=st.sampled_from([None, AdaKV(0.2), AdaKV(0.2, "hard"), AdaKV(0.5, "hard")]),
    granularity=st.sampled_from(["kv_head", "query_head"]),
    first_stage=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    n=st.integers(12, 60),
    data=st.data(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_each_head_keeps_its_first_stage_and_fills_up_by_weighted_scores(
    heads, granularity, first_stage, n, data, dtype
):
    """Head by head and token by token, with the numbers of tokens that the base alone would keep."""
    layer = random_layer(6, 2, n, dtype=dtype)
    budget = data.draw(st.integers(9, n - 1))
    plain = Eviction(scoring=BASE, granularity=granularity)
    plain = plain if heads is None else replace(plain, heads=heads)
    method = replace(plain, scoring=CriticalKV(BASE, first_stage))
    kept, by_base = (one.select(layer, 0, 4, budget).mask(layer).flatten(0, 1) for one in (method, plain))
    assert torch.equal(kept.sum(1), by_base.sum(1))
    scores = plain.scores(layer, 8)
    shared = plain.heads.share(scores, LayerBudget(budget, 8, 0, budget), layer)
    norms = layer.value_output_norm.unflatten(0, (len(scores), -1)).mean(1)[:, : n - 8]
    for head, total in enumerate(kept.sum(1).tolist()):
        s = scores[head].tolist()
        by_score = sorted(range(n - 8), key=lambda i: (-s[i], i))
        sure = max(int(first_stage * total + 1e-9) - 8, shared.sure)
        chosen = set(by_score[:sure])
        rest = [i for i in range(n - 8) if i not in chosen]
        weighted = (scores[head] + 8 * 1e-4) * norms[head]  # S is summed over 8 queries
        chosen |= set(sorted(rest, key=lambda i: (-weighted[i].item(), i))[: total - 8 - sure])
        assert set(kept[head].nonzero()[:, 0].tolist()) == chosen | set(range(n - 8, n))


@pytest.mark.parametrize("base", [BASE, ColumnSums(recent=8), ColumnSums(recent=8, score="mean")])
def test_epsilon_is_added_to_the_attention_of_one_query(base):
    """Where a score is a sum over queries, it is added as often."""
    layer = random_layer(n=40)
    queries = {"sum": 40, "mean": 1}.get(getattr(base, "score", ""), 8)
    assert CriticalKV(base).base.queries(layer) == queries


@pytest.mark.parametrize("heads", [AdaKV(0.2), AdaKV(0.2, "hard"), AdaKV(1)])
def test_a_whole_first_stage_and_equal_norms_are_the_base(heads):
    layer = random_layer(6, 2, 60)
    base = Eviction(scoring=BASE, heads=heads).select(layer, 0, 4, 24)
    whole = Eviction(scoring=CriticalKV(BASE, 1.0), heads=heads).select(layer, 0, 4, 24)
    assert torch.equal(whole.chosen, base.chosen)
    method = Eviction(scoring=CriticalKV(BASE), heads=heads)
    other, scaled = method.select(layer, 0, 4, 24), replace(layer, value_output_norm=8 * layer.value_output_norm)
    assert torch.equal(method.select(scaled, 0, 4, 24).chosen, other.chosen)
    layer.value_output_norm = torch.full((6, 60), 3.0)
    assert torch.equal(method.select(layer, 0, 4, 24).chosen, base.chosen)


def test_sinks_stay_whatever_their_values_add():
    scoring = CriticalKV(replace(Given(), scores=tuple([float("inf")] * 4 + [0.5] * 36)))
    layer = random_layer(1, 1, 40)
    layer.value_output_norm[:, :4] = 0
    assert Eviction(scoring=scoring).select(layer, 0, 1, 6).indices[0, :4].tolist() == [0, 1, 2, 3]


def test_what_the_base_says_of_itself_holds():
    scoring = CriticalKV(ExpectedAttention(value_norm=False))
    assert scoring.needs == Needs(query_moments=frozenset([4]), value_output_norm=True)
    assert scoring.sinks == 4 and scoring.minimum_budget == 5 and not scoring.per_query_head
    assert CriticalKV(ColumnSums(recent=8)).minimum_budget == 9


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: CriticalKV(KNorm()), "KNorm has negative scores"),
        (lambda: CriticalKV(KeyDiff()), "KeyDiff has negative scores"),
        (lambda: CriticalKV(CriticalKV()), "CriticalKV does not choose by one score of each token"),
        (lambda: CriticalKV(Finch(chunk=16)), "Finch does not choose by one score of each token"),
        (lambda: CriticalKV(NACL()), "NACL does not choose by one score of each token"),
        (lambda: CriticalKV(first_stage=2.0), "first_stage=2.0"),
    ],
)
def test_what_has_no_meaning_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
