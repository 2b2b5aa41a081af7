"""Cuts that rounding could place elsewhere: counted where scores nearly tie, and only there."""

import json

import pytest
import torch

from kvbench.cache.eviction_cuts import CUT_NOISE, Cuts, close_cuts
from kvbench.methods import Eviction, KNorm, WindowAttention
from kvbench.prefill import prefill
from tests.support.config import method
from tests.support.paths import ROOT
from tests.support.tiny import prompt, tiny_model

DTYPES = pytest.mark.parametrize("dtype", CUT_NOISE, ids=str)
MEASURED = json.loads((ROOT / "results/benchmarks/cut_rounding.json").read_text())["found"]


def ranked(gap: float) -> torch.Tensor:
    """Two heads of four scores; the first has `gap` between its second and its third, the other 1."""
    return torch.tensor([[3.0, 2.0, 2.0 - gap, 0.5], [4.0, 3.0, 2.0, 1.0]], dtype=torch.float64)


@DTYPES
def test_a_gap_below_the_measured_noise_is_close(dtype):
    noise = 2.0 * CUT_NOISE[dtype] * torch.finfo(dtype).eps
    for gap, close in ((0.9 * noise, 1), (1.1 * noise, 0), (0.0, 1)):
        rows = ranked(gap)[:1]
        for kept in (2, torch.tensor([2])):
            assert close_cuts([Cuts.from_ranked(rows, kept, dtype, False)]) == close


def test_copies_of_one_score_are_a_tie_on_every_machine():
    assert close_cuts([Cuts.from_ranked(ranked(0.0), 2, torch.float32, True)]) == 0
    assert close_cuts([Cuts.from_ranked(ranked(1e-9), 2, torch.float32, True)]) == 1


def test_each_head_is_cut_where_it_keeps_and_all_or_nothing_is_no_cut():
    rows = ranked(0.0)
    for kept, close in (([2, 2], 1), ([1, 2], 0), ([0, 4], 0), ([2, 0], 1)):
        assert close_cuts([Cuts.from_ranked(rows, torch.tensor(kept), torch.float32, False)]) == close
    for kept in (0, 4):
        assert Cuts.from_ranked(rows, kept, torch.float32, False) is None
    rows[0, 1:3] = torch.inf  # sinks, which always stay
    assert close_cuts([Cuts.from_ranked(rows, 2, torch.float32, False)]) == 0
    assert close_cuts([None, None]) is None


def test_repeated_tokens_tie_in_the_norm_of_their_keys_and_others_do_not():
    """Layer 0's keys depend on the token alone, and RoPE keeps norms."""
    model = tiny_model()
    repeated, other = torch.tensor([7, 9] * 30), prompt(60)
    found = []
    for ids in (repeated, other):
        state = prefill(model, ids, KNorm().needs)
        caches = Eviction(scoring=KNorm()).compress(state, 20)
        found.append(close_cuts([caches[0].kept.cuts]))
    assert found == [2, 0]  # both KV heads


@pytest.mark.parametrize("name", ["snapkv", "adakv", "h2o", "quest", "streaming_llm", "full"])
def test_the_cuts_of_a_preset_are_known_where_it_ranks_tokens(name):
    chosen = method(name)
    state = prefill(tiny_model(), prompt(90), chosen.needs)
    cuts = [cache.kept.cuts for cache in chosen.compress(state, 40)]
    assert all(each is not None for each in cuts) == isinstance(chosen, Eviction) and len(cuts) == 3
    if isinstance(chosen, Eviction):
        assert cuts[0].scores.shape == (2 if chosen.granularity == "kv_head" else 6, 2)
        assert cuts[0].pooled == (isinstance(chosen.scoring, WindowAttention))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bound_is_the_largest_change_that_was_measured(dtype):
    largest = max(one["largest_change_of_a_gap"] for one in MEASURED[dtype].values())
    assert largest <= CUT_NOISE[getattr(torch, dtype)] < 1.05 * largest + 1
