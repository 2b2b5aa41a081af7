"""Budgets by composite tokens: against a plain loop, and what stays."""

import pytest
import torch

from kvbench.methods import Codebook, CompositeHeads, Dense, Eviction, Kivi, KNorm
from tests.support.every_method import rope, steps
from tests.support.tiny import random_state

LAYERS, HEADS, N = 4, 2, 20


def ranked(seed: int = 0) -> list[torch.Tensor]:
    scores = torch.rand(LAYERS, HEADS, N, generator=torch.Generator().manual_seed(seed))
    return list((scores * torch.arange(1, LAYERS + 1)[:, None, None]).sort(dim=-1, descending=True).values)


def test_the_best_means_of_all_layers_stay_and_the_lowest_layer_has_the_best_of_each_place():
    rows = ranked()
    composite = [[sum(head[i] for head in row.tolist()) / HEADS for i in range(N)] for row in rows]
    composite[0] = [max(layer[i] for layer in composite) for i in range(N)]
    best = sorted(((score, -i, -at) for at, row in enumerate(composite) for i, score in enumerate(row)), reverse=True)
    expected = [sum(-at == layer for _, _, at in best[: LAYERS * 6]) for layer in range(LAYERS)]
    counts = CompositeHeads().pooled(rows, 6, 0, N)
    assert counts.tolist() == [[count] * HEADS for count in expected]
    assert counts.sum() == LAYERS * HEADS * 6 and counts.max() == counts[0, 0] and len(set(expected)) > 2


def test_a_window_and_tokens_that_always_stay_count_in_the_budget():
    rows = ranked()
    for row in rows:
        row[:, :3] = float("inf")
    counts = CompositeHeads().pooled(rows, 8, 2, N + 2)
    assert counts.min() >= 3 and counts.sum() == LAYERS * HEADS * 6


def test_a_layer_without_any_of_the_best_keeps_nothing_and_the_budget_holds():
    rows = [torch.full((HEADS, N), 0.0 if layer == 2 else 1.0) for layer in range(LAYERS)]
    counts = CompositeHeads().pooled(rows, 2, 0, N)
    assert counts[2].tolist() == [0, 0] and counts.sum() == LAYERS * HEADS * 2


@pytest.mark.parametrize("storage", [Dense(), Kivi(residual=32), Codebook()], ids=["dense", "kivi", "codebook"])
def test_an_eviction_within_its_budget_leaves_a_layer_empty(storage):
    state = random_state(LAYERS, n=N, head_dim=32, rope=rope())
    state.layers[2].keys = 100 * state.layers[2].keys  # the best keys are short
    caches = Eviction(scoring=KNorm(), heads=CompositeHeads(), storage=storage).compress(state, 2)
    kept = [cache.kept.per_head for cache in caches]
    assert kept[2] == (0, 0) and sum(map(sum, kept)) == LAYERS * HEADS * 2
    assert all(out.isfinite().all() for out in steps(caches, 3))
