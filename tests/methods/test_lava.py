"""LAVa: one score for tokens, heads and layers; the released code's floor and rounding."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.methods import (
    AdaKV,
    EqualHeads,
    Eviction,
    FullKV,
    Kivi,
    KNorm,
    LAVa,
    LAVaHeads,
    Pyramid,
    ScoreEntropy,
    WindowAttention,
)
from tests.support.config import method
from tests.support.tiny import random_layer, random_state

N, BUDGET, WINDOW = 90, 30, 8
SCORING = LAVa(WINDOW, 5)
SMALL = Eviction(ScoreEntropy(), SCORING, group_reduce="max", heads=LAVaHeads())
OFFICIAL = replace(SMALL, allocation=ScoreEntropy("official"), heads=LAVaHeads(floor="official"))


def sharpened(num_layers: int = 4, dtype: torch.dtype = torch.float32, **layer):
    """Layers with keys of other lengths, so that the entropies of their scores differ."""
    state = random_state(num_layers, window=WINDOW, n=N, dtype=dtype, **layer)
    for made in state.layers:
        made.keys = made.keys * (1 + made.index)
    return state


def kept(chosen: Eviction, state, budget: int) -> list[torch.Tensor]:
    given = chosen.for_prompt(state, budget) if isinstance(chosen.allocation, ScoreEntropy) else chosen
    return [given.select(layer, layer.index, len(state.layers), budget).mask(layer) for layer in state.layers]


def entropy(scores: torch.Tensor) -> float:
    p = (scores.double() / scores.double().sum()).flatten()
    return float(-(p * p.log()).sum() / math.log(len(p)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_tokens_score_is_pooled_attention_times_the_heads_largest_value(dtype):
    layer = random_layer(n=N, window=WINDOW, dtype=dtype)
    votes = layer.window_votes(WINDOW)[:, : N - WINDOW]
    pooled = F.max_pool1d(votes[None], 5, stride=1, padding=2)[0].unflatten(0, (2, 3)).amax(1)
    largest = layer.values[:, : N - WINDOW].float().abs().sum(-1).amax(-1)
    assert torch.allclose(SMALL.scores(layer, WINDOW), pooled * largest[:, None], rtol=1e-6)


def test_layers_share_the_budget_by_the_normalised_entropy_of_their_scores():
    state = sharpened()
    weights = [entropy(SMALL.scores(layer, WINDOW)) for layer in state.layers]
    assert all(0 < weight <= 1 for weight in weights) and len({round(weight, 3) for weight in weights}) == 4
    total = 4 * (BUDGET - WINDOW)
    for chosen, rounded in ((SMALL, None), (OFFICIAL, [int(total * w / sum(weights)) + WINDOW for w in weights])):
        tokens = chosen.for_prompt(state, BUDGET).budgets.of_layers(BUDGET, N, 4)
        assert tokens == rounded or (rounded is None and sum(tokens) == 4 * BUDGET)
        assert all(abs(b - WINDOW - total * w / sum(weights)) < 1 for b, w in zip(tokens, weights, strict=True))


def test_the_released_floor_by_hand():
    """The realised mean per head is (1 - alpha)·(B - w) + alpha·B + w: 69.6 at a budget of 64, 133.8 at 128."""
    for budget, mean in ((64, 69.6), (128, 133.8), (1024, 1029.6)):
        heads = LAVaHeads(0.2, "official")
        length = budget * 3
        ranked = torch.rand(500, length, generator=torch.Generator().manual_seed(0)).sort(descending=True).values
        counts = heads.counts(ranked, budget, 32, None)
        assert abs(counts.double().mean().item() + 32 - mean) < 0.05
        assert counts.min() >= int(0.2 * budget)


def test_one_released_layer_and_head_has_the_budget_and_the_floor():
    layer = random_layer(1, 1, N, window=WINDOW)
    state = random_state(1, heads=1, kv_heads=1, n=N, window=WINDOW)
    (mask,) = kept(OFFICIAL, state, BUDGET)
    assert mask.sum() == round(0.8 * (BUDGET - WINDOW) + int(0.2 * BUDGET)) + WINDOW
    assert layer.n == mask.shape[-1]


@pytest.mark.parametrize("granularity, reduce", [("kv_head", "max"), ("query_head", "mean")])
def test_with_equal_entropies_and_alpha_1_it_is_snapkv(granularity, reduce):
    state = random_state(1, n=N, window=WINDOW)
    state.layers *= 3  # one layer three times
    chosen = replace(SMALL, heads=LAVaHeads(alpha=1), granularity=granularity, group_reduce=reduce)
    snapkv = Eviction(scoring=WindowAttention(WINDOW, 5), granularity=granularity, group_reduce=reduce)
    for mine, theirs in zip(kept(chosen, state, BUDGET), kept(snapkv, state, BUDGET), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("chosen", [SMALL, OFFICIAL], ids=["exact", "official"])
def test_values_times_a_constant_change_nothing(chosen):
    state = sharpened()
    before = kept(chosen, state, BUDGET)
    for layer in state.layers:
        layer.values = layer.values * 4
    assert all(torch.equal(one, other) for one, other in zip(before, kept(chosen, state, BUDGET), strict=True))


def test_a_head_whose_values_are_zero_gets_the_floor_alone():
    state = random_state(1, heads=4, kv_heads=4, n=N, window=WINDOW)
    state.layers[0].values[1] = 0
    (mask,) = kept(SMALL, state, BUDGET)
    counts = mask.sum(2)[:, 0].tolist()
    assert counts[1] == WINDOW + int(0.2 * (BUDGET - WINDOW)) and sum(counts) == 4 * BUDGET


def test_scores_of_zero_everywhere_divide_the_budget_equally():
    state = random_state(3, n=N, window=WINDOW)
    for layer in state.layers:
        layer.values = torch.zeros_like(layer.values)
    assert SMALL.for_prompt(state, BUDGET).budgets.of_layers(BUDGET, N, 3) == [BUDGET] * 3


@pytest.mark.parametrize("chosen", [SMALL, OFFICIAL], ids=["exact", "official"])
def test_a_budget_of_the_prompt_is_fullkv(chosen):
    state = sharpened()
    for mine, full in zip(chosen.compress(state, N), FullKV().compress(state, N), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine.tensors(), full.tensors(), strict=True))


@given(
    weights=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=40),
    free=st.integers(1, 300),
    dropped=st.integers(1, 300),
    window=st.integers(0, 40),
)
def test_shares_fit_the_prompt_and_the_budget(weights, free, dropped, window):
    budget, n, m = window + free, window + free + dropped, len(weights)
    tokens = ScoreEntropy().divide(weights, budget, n, window)
    assert sum(tokens) == m * budget and all(window <= count <= n for count in tokens)
    official = ScoreEntropy("official").divide(weights, budget, n, window)
    assert sum(official) <= m * budget and all(window <= count <= n for count in official)
    assert all(one - 1 <= other for one, other in zip(official, tokens, strict=True))


@pytest.mark.parametrize("parts", [{"heads": EqualHeads()}, {"heads": AdaKV()}, {"storage": Kivi()}], ids=str)
def test_its_layers_go_with_other_heads_and_storages(parts):
    state = sharpened(3, head_dim=32)
    caches = replace(SMALL, **parts).compress(state, 48)
    assert sum(cache.kept.nominal for cache in caches) == 3 * 48


def test_its_heads_go_under_other_layers():
    state = sharpened(3)
    caches = Eviction(Pyramid(4), SCORING, group_reduce="max", heads=LAVaHeads(floor="official")).compress(
        state, BUDGET
    )
    sizes = [sum(cache.kept.per_head) / 2 for cache in caches]
    assert sizes[0] > sizes[1] > sizes[2] >= WINDOW + int(0.2 * BUDGET)


def test_scores_that_are_no_distribution_are_refused():
    with pytest.raises(UserError, match="those of KNorm may be negative"):
        Eviction(ScoreEntropy(), KNorm())


def test_the_presets_are_the_two_readings():
    plain, paper = method("lava"), method("lava_paper")
    assert plain.scoring == paper.scoring == LAVa(32, 7, "max") and plain.group_reduce == paper.group_reduce == "max"
    assert plain.allocation == ScoreEntropy() and plain.heads == LAVaHeads(0.2, "layer")
    assert paper.allocation == ScoreEntropy("official") and paper.heads == LAVaHeads(0.2, "official")
