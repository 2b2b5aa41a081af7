"""Pooled heads: one budget for all heads of all layers, by their scores (KVzip's level `pair`)."""

import pytest
import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import (
    AdaKV,
    ColumnSums,
    CriticalKV,
    Eviction,
    FullKV,
    KNorm,
    KVzip,
    PooledHeads,
    Pyramid,
    SimLayerKV,
    SqueezeAttention,
    WindowAttention,
)
from kvbench.prefill import ContextFrame, FullPrefill
from tests.support.config import method
from tests.support.tiny import LAYOUTS, prompt, random_state, tiny_model

KVZIP = Eviction(scoring=KVzip(), heads=PooledHeads())
OFFICIAL = Eviction(scoring=KVzip(), heads=PooledHeads("official"))
INF = float("inf")


def rows(*layers: list[list[float]]) -> list[Tensor]:
    return [torch.tensor(layer) for layer in layers]


def masks(chosen: Eviction, state, budget: float) -> Tensor:
    """Which tokens each head of each layer keeps, bool [layers, heads, n]."""
    given = chosen.for_prompt(state, budget)
    return torch.stack([given.select(layer, layer.index, len(state.layers), budget).chosen for layer in state.layers])


RANKED = rows([[INF, 9.0, 8, 1], [INF, 7.0, 3, 1]], [[INF, 6.0, 5, 4], [INF, 2.0, 1, 1]])


@pytest.mark.parametrize(
    "budget, counts",
    [(1, [[1, 1], [1, 1]]), (2, [[3, 2], [2, 1]]), (3, [[3, 3], [4, 2]]), (4, [[4, 4], [4, 4]])],
)
def test_the_best_of_all_layers_by_hand(budget, counts):
    assert PooledHeads().pooled(RANKED, budget, 0, 4).tolist() == counts


def test_a_budget_below_what_always_stays_keeps_that():
    ranked = rows([[INF, INF, INF, 1.0], [INF, INF, INF, 2.0]])
    for threshold in ("exact", "official"):
        assert PooledHeads(threshold).pooled(ranked, 1, 0, 4).tolist() == [[3, 3]]


def test_equal_scores_go_to_the_rank_in_the_head_then_the_layer_then_the_head():
    ranked = rows(*[[[1.0] * 5] * 2] * 2)
    assert PooledHeads().pooled(ranked, 2, 0, 5).tolist() == [[2, 2], [2, 2]]
    ranked[1] = ranked[1] * 2
    assert PooledHeads().pooled(ranked, 3, 0, 5).tolist() == [[1, 1], [5, 5]]


@pytest.mark.parametrize(
    "ratio, counts",
    # 12 scores: 9 8 7 6 5 4 3 2 1 1 1 1; the place is int(12 · ratio), and the score there is lost
    [(0.25, [[3, 1], [1, 1]]), (0.3, [[3, 1], [1, 1]]), (0.5, [[3, 2], [3, 1]]), (0.9, [[3, 3], [4, 2]])],
)
def test_the_released_threshold_by_hand(ratio, counts):
    assert PooledHeads("official").pooled(RANKED, ratio * 4, 0, 4).tolist() == counts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("budget", [6, 20, 39])
def test_the_budget_is_met_to_the_token_and_no_dropped_token_beats_a_kept_one(layout, budget):
    heads, kv_heads = LAYOUTS[layout]
    state = random_state(3, heads=heads, kv_heads=kv_heads)
    kept = masks(KVZIP, state, budget)
    assert kept.sum() == 3 * kv_heads * budget
    scores = torch.stack([KVZIP.scoring.votes(layer) for layer in state.layers])
    assert scores[kept].min() > scores[~kept].max()
    assert len({int(count) for count in kept.sum(dim=-1).flatten()}) > 1
    caches = KVZIP.compress(state, budget)
    assert ReserveRatio.from_layers([cache.kept for cache in caches], 1, 1).r == pytest.approx(budget / 40)
    assert sum(cache.kept.nominal for cache in caches) >= 3 * budget


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5])
def test_the_released_threshold_keeps_what_is_above_the_score_at_the_cut(ratio):
    state = random_state(3)
    scores = torch.stack([KVZIP.scoring.votes(layer) for layer in state.layers])
    context = scores[..., 4:]
    ordered = context.flatten().sort(descending=True).values
    cut = ordered[max(int(len(ordered) * ratio) - 1, 0)]
    kept = masks(OFFICIAL, state, ratio * 40)
    assert torch.equal(kept[..., 4:], context > cut) and kept[..., :4].all()


def test_the_released_threshold_is_given_whole_ratios():
    assert OFFICIAL.takes_fractions and not KVZIP.takes_fractions
    assert method("kvzip_paper").takes_fractions


def test_one_layer_alone_is_adakv_without_a_safeguard():
    state = random_state(1)
    scoring = WindowAttention(8, 5)
    ada = Eviction(scoring=scoring, heads=AdaKV(0))
    mask = ada.select(state.layers[0], 0, 1, 20).chosen
    assert torch.equal(masks(Eviction(scoring=scoring, heads=PooledHeads()), state, 20)[0], mask)


@pytest.mark.parametrize(
    "scoring, granularity",
    [
        (scoring, granularity)
        for scoring in (WindowAttention(8, 5), CriticalKV(WindowAttention(8, 5)), KNorm(window=3))
        for granularity in ("kv_head", "query_head")
        if scoring.per_query_head or granularity == "kv_head"  # else it has one score for a KV head
    ],
    ids=str,
)
def test_any_scoring_can_be_pooled(scoring, granularity):
    state = random_state(3)
    pooled = Eviction(scoring=scoring, heads=PooledHeads(), granularity=granularity)
    kept = masks(pooled, state, 20)
    assert kept.sum() == kept[..., 0].numel() * 20
    window = scoring.protected(20)
    assert kept[..., 40 - window :].all()


@pytest.mark.parametrize("chosen", [KVZIP, OFFICIAL], ids=str)
def test_a_ratio_of_one_decodes_fullkvs_tokens(chosen):
    model, frame = tiny_model().double(), ContextFrame(9, 75)
    source = SharedPass(model, prompt(80), FullPrefill(), chosen.needs, lambda: frame)
    compressed = [source.compress(one, 80) for one in (chosen, FullKV())]
    zipped, full = (generate(model, x.caches, x.logits, 20, frozenset()).tokens for x in compressed)
    assert zipped == full


def test_a_fraction_of_a_token_does_not_change_how_many_recent_ones_a_scoring_keeps():
    """H2O's window is half of a budget, which the released threshold takes as ratio·n."""
    state, method = random_state(3, n=60), Eviction(scoring=ColumnSums(), heads=PooledHeads("official"))
    for cache in method.compress(state, 18.9):
        assert min(cache.kept.per_head) >= 9


def test_what_divides_the_budget_between_layers_itself_is_refused():
    with pytest.raises(
        UserError, match="PooledHeads divides the budget between layers, too: it needs allocation Uniform"
    ):
        Eviction(allocation=Pyramid(), heads=PooledHeads())
    with pytest.raises(UserError, match="divides the budget between layers itself"):
        SqueezeAttention(policy=KVZIP)
    with pytest.raises(UserError, match="PooledHeads divides the budget by the scores of all layers, but SimLayerKV"):
        SimLayerKV(others=Eviction(heads=PooledHeads()))
    assert not KVZIP.layerwise and not KVZIP.streams
