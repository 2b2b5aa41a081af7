"""What a layer's state remembers for the settings that share it."""

from dataclasses import fields, is_dataclass, replace

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import RKV, Eviction, Scoring, WindowAttention
from kvbench.methods.storage.by_head import one_head
from kvbench.prefill import Blocks, FullPrefill, LayerState, Needs, Reconstruction, state
from tests.support.tiny import prompt, random_layer, tiny_model

MODEL = tiny_model()
ALL = Needs(
    20,
    True,
    True,
    frozenset([4, 6]),
    frozenset([0, 4]),
    True,
    frozenset([Reconstruction(chunk=10, requests=None)]),
    True,
    frozenset([Blocks(8), Blocks(16)]),
)
PART = Needs(8, lookahead_sums=frozenset([6]), query_moments=frozenset([4]), block_sums=frozenset([Blocks(16)]))


def test_each_name_is_computed_once():
    layer, made = random_layer(4, 2, 20, 8), []
    for _ in range(2):
        for name in ("a", ("a", 8)):
            assert layer.once(name, lambda name=name: made.append(name) or name) == name
    assert made == ["a", ("a", 8)]


def test_a_changed_copy_of_a_layer_remembers_nothing():
    layer = random_layer(4, 2, 20, 8)
    votes = layer.window_votes(8), layer.window_moments(8)
    changed = replace(layer, keys=2 * layer.keys)
    assert not torch.equal(changed.window_votes(8), votes[0])
    assert not torch.equal(changed.window_moments(8).mean, votes[1].mean)
    head = one_head(layer, 3, 4)
    assert torch.equal(head.window_votes(8), replace(head).window_votes(8))
    assert len(head.window_moments(8).mean) == len(head.window_votes(8)) == 1
    assert torch.equal(layer.window_votes(8), votes[0]) and torch.equal(layer.window_moments(8).mean, votes[1].mean)


def test_votes_that_a_scorer_writes_are_its_own_and_computed_once_for_all(monkeypatch):
    layer, computed = random_layer(4, 2, 20, 8), []
    for name in ("column_sums", "window_moments"):
        compute = getattr(state, name)
        monkeypatch.setattr(state, name, lambda *given, f=compute: computed.append(given) or f(*given))
    votes, mean = layer.window_votes(8).clone(), layer.window_moments(8).mean.clone()
    layer.window_votes(8)[:, :4] = float("inf")
    layer.window_moments(8).mean.zero_()
    assert torch.equal(layer.window_votes(8), votes) and torch.equal(layer.window_moments(8).mean, mean)
    assert len(computed) == 2


def test_redundancy_is_computed_once_for_all_ratios(monkeypatch):
    layer, calls = random_layer(4, 2, 40, 8), []
    compute = RKV.redundancy
    monkeypatch.setattr(RKV, "redundancy", lambda self, keys: calls.append(self) or compute(self, keys))
    votes = [RKV(importance=share).votes(layer) for share in (0.1, 0.1, 0.5)]
    assert torch.equal(votes[0], votes[1]) and not torch.equal(votes[0], votes[2])
    assert len(calls) == 1
    RKV(threshold=0.9).votes(layer)
    assert len(calls) == 2


def observed(needs: Needs) -> SharedPass:
    return SharedPass(MODEL, prompt(40), FullPrefill(), needs)


def same(a, b) -> bool:
    """Whether two values of a field are equal: tensors, or what holds them."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if is_dataclass(a) and type(a) is type(b):
        return same(vars(a), vars(b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b


@pytest.mark.parametrize("needs", [Needs(), PART, *(Needs(**{f.name: getattr(ALL, f.name)}) for f in fields(Needs))])
def test_what_one_setting_requested_is_what_its_own_pass_observes(needs):
    assert all(getattr(ALL, field.name) for field in fields(Needs))
    names = {field.name for field in fields(LayerState)} - {"rope", "_cached"}
    for mine, alone in zip(observed(ALL).state.requested(needs).layers, observed(needs).state.layers, strict=True):
        assert [name for name in names if not same(getattr(mine, name), getattr(alone, name))] == []


class Greedy(Scoring):
    """Reads more queries than it requests."""

    needs = Needs(window=8)

    def votes(self, layer):
        return layer.window_votes(16)


def test_a_scorer_is_refused_the_queries_that_another_setting_requested():
    run = observed(Needs(window=16))
    run.compress(Eviction(scoring=WindowAttention(16)), 20)
    with pytest.raises(UserError, match=r"Greedy.* reads 16 queries, and 8 were observed"):
        run.compress(Eviction(scoring=Greedy()), 20)
