"""What a layer's state remembers for the settings that share it."""

from dataclasses import replace

import torch

from kvbench.methods import RKV
from kvbench.methods.storage.by_head import one_head
from tests.support.tiny import random_layer


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
    assert layer.window_votes(8) is votes[0] and layer.window_moments(8) is votes[1]


def test_redundancy_is_computed_once_for_all_ratios(monkeypatch):
    layer, calls = random_layer(4, 2, 40, 8), []
    compute = RKV.redundancy
    monkeypatch.setattr(RKV, "redundancy", lambda self, keys: calls.append(self) or compute(self, keys))
    votes = [RKV(importance=share).votes(layer) for share in (0.1, 0.1, 0.5)]
    assert torch.equal(votes[0], votes[1]) and not torch.equal(votes[0], votes[2])
    assert len(calls) == 1
    RKV(threshold=0.9).votes(layer)
    assert len(calls) == 2
