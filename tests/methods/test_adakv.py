"""AdaKV shares a layer's tokens between its heads, under any scoring and allocation."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.methods import H2O, AdaKV, Codebook, Dense, Eviction, Kivi, MiniCache, Pyramid, Uniform, WindowAttention
from kvbench.methods.adakv import largest_remainder, pooled_counts
from kvbench.methods.allocation import base
from tests.support.codebook_layers import ROPE
from tests.support.tiny import random_layer, random_state

SCORING = WindowAttention(8, 5)
EVERY = [AdaKV(0.2), AdaKV(0.2, rounding="official"), AdaKV(0.2, "hard"), AdaKV(0), AdaKV(0, "hard"), AdaKV(1)]
# figures of a layer of eight heads with c = 96
F = [200, 150, 120, 100, 80, 60, 40, 18]


def ranked_with(counts: list[int], length: int = 300) -> torch.Tensor:
    """Scores [heads, length], each row descending, of which the largest are counts[h] in row h."""
    places = torch.arange(length)
    return torch.where(places < torch.tensor(counts)[:, None], 2.0, 1.0) - places / 1000


@pytest.mark.parametrize(
    "rounding, counts",
    [
        ("official", [179, 139, 115, 99, 83, 67, 51, 33]),
        ("exact", [180, 139, 115, 99, 83, 67, 51, 34]),
    ],
)
def test_the_blend_by_hand(rounding, counts):
    ranked = ranked_with(F)
    assert pooled_counts(ranked, 8 * 96).tolist() == F
    assert AdaKV(0.2, rounding=rounding).counts(ranked, 96, 0, None).tolist() == counts


def test_the_hard_floor_by_hand():
    """Of 5 tokens per head, the window of 1 included, 2 are sure: one of the context. 2 · 4 - 2 are free."""
    ranked = torch.tensor([[9.0, 8, 7, 6, 5, 4, 3], [2.0, 1, 1, 1, 1, 1, 1]])
    assert AdaKV(0.4, "hard").counts(ranked, 5, 1, None).tolist() == [7, 1]
    assert AdaKV(0.8, "hard").counts(ranked, 5, 1, None).tolist() == [5, 3]
    assert AdaKV(0.01, "hard").counts(ranked, 5, 0, None).tolist() == [7, 3], "the prompt has no more"


def test_equal_scores_are_shared_out_by_their_rank_in_their_head():
    ranked = torch.ones(3, 10)
    assert pooled_counts(ranked, 12).tolist() == [4, 4, 4]
    assert pooled_counts(ranked, 13).tolist() == [5, 4, 4]


@given(st.lists(st.floats(0, 50), min_size=1, max_size=12))
def test_remainders_are_those_of_the_allocation(shares):
    total = round(sum(shares))
    shares = [share * total / max(sum(shares), 1e-12) for share in shares]
    ours = largest_remainder(torch.tensor(shares, dtype=torch.float64), total).tolist()
    assert ours == base.largest_remainder(shares, total) and sum(ours) == total


@given(
    heads=st.sampled_from(EVERY),
    granularity=st.sampled_from(["kv_head", "query_head"]),
    layout=st.sampled_from([(6, 2), (4, 4), (4, 1)]),
    n=st.integers(12, 60),
    data=st.data(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_budgets_sum_to_the_layers_and_each_head_keeps_its_best_and_the_window(
    heads, granularity, layout, n, data, dtype
):
    layer = random_layer(*layout, n, dtype=dtype)
    budget = data.draw(st.integers(9, n - 1))
    method = Eviction(scoring=SCORING, granularity=granularity, heads=heads)
    selection = method.select(layer, 0, 4, budget)
    count, c = len(selection.chosen), budget - 8
    sizes = selection.chosen.sum(1) - 8
    if heads.rounding == "exact":
        assert sizes.sum() == count * c
    assert abs(int(sizes.sum()) - count * c) <= count
    floor = int(heads.alpha * budget + 1e-9) - 8 if heads.safeguard == "hard" else int(heads.alpha * c)
    assert sizes.min() >= max(floor, 0) and sizes.max() + 8 <= selection.limit
    assert selection.chosen[:, n - 8 :].all()
    scores = method.scores(layer, 8)
    for score, chosen, size in zip(scores, selection.chosen, sizes.tolist(), strict=True):
        best = sorted(range(n - 8), key=lambda i: (-score[i].item(), i))[:size]
        assert chosen[: n - 8].nonzero()[:, 0].tolist() == sorted(best)


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("allocation", [Uniform(), Pyramid(4)])
def test_alpha_1_and_a_single_head_are_snapkv(granularity, allocation):
    plain = Eviction(allocation, SCORING, granularity)
    for layout, heads in (((6, 2), [AdaKV(1), AdaKV(1, "hard")]), ((1, 1), EVERY)):
        layer = random_layer(*layout, 60)
        expected = plain.select(layer, 1, 4, 25).mask(layer)
        for each in heads:
            assert torch.equal(replace(plain, heads=each).select(layer, 1, 4, 25).mask(layer), expected)


def test_heads_with_the_same_scores_are_snapkv():
    layer = random_layer(2, 2, 60)
    for x in (layer.keys, layer.queries):
        x[1] = x[0]
    for heads in EVERY:
        method = Eviction(scoring=SCORING, heads=heads)
        expected = Eviction(scoring=SCORING).select(layer, 0, 4, 24)
        assert torch.equal(method.select(layer, 0, 4, 24).mask(layer), expected.mask(layer))


def test_without_a_safeguard_no_division_between_heads_keeps_more_score():
    layer = random_layer(6, 2, 60)
    snapkv, adakv = Eviction(scoring=SCORING), Eviction(scoring=SCORING, heads=AdaKV(0))
    scores = snapkv.scores(layer, 8)
    kept = [(scores * m.select(layer, 0, 4, 20).mask(layer)[:, 0, :52]).sum() for m in (snapkv, adakv)]
    assert kept[1] > kept[0]


@given(heads=st.sampled_from(EVERY), data=st.data())
def test_more_budget_keeps_everything_a_smaller_one_kept_to_a_remainder(heads, data):
    layer = random_layer(6, 2, 60)
    small, large = sorted(data.draw(st.lists(st.integers(9, 59), min_size=2, max_size=2)))
    few, many = (Eviction(scoring=SCORING, heads=heads).select(layer, 0, 4, b).chosen for b in (small, large))
    lost = (few & ~many).sum(1)
    # exact: a head may lose the one token that a remainder gave it
    assert lost.max() <= (heads.safeguard == "blend" and heads.rounding == "exact" and 0 < heads.alpha < 1)


def test_a_budget_of_the_prompt_keeps_everything():
    layer = random_layer(n=30)
    assert Eviction(scoring=SCORING, heads=AdaKV()).select(layer, 0, 4, 30).indices is None


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("storage", [Dense(), Kivi(8, 8, 16), Codebook(1.0, 1.0)], ids=lambda x: type(x).__name__)
def test_storages_hold_what_was_selected(storage, granularity):
    state = random_state(2, head_dim=8, n=60, rope=None)
    if isinstance(storage, Codebook):
        for layer in state.layers:
            layer.rope = ROPE
    method = Eviction(scoring=SCORING, granularity=granularity, heads=AdaKV(), storage=storage)
    caches = method.compress(state, 20)
    for layer, cache in zip(state.layers, caches, strict=True):
        counts = method.select(layer, 0, 2, 20).mask(layer)
        if isinstance(storage, Codebook):  # a token of several query heads is stored once
            counts = counts.any(dim=1, keepdim=True)
        assert cache.kept.per_head == tuple(counts.sum(2).flatten().tolist())


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Eviction(heads=AdaKV(), storage=MiniCache()), "MiniCache needs the same tokens in every layer"),
        (lambda: Eviction(heads=AdaKV(), granularity="layer"), "AdaKV shares tokens between heads: granularity=layer"),
        (lambda: H2O(heads=AdaKV(), decode="update"), "decode=update evicts a token of every head at once"),
        (lambda: AdaKV(1.2), "alpha=1.2"),
        (lambda: AdaKV(safeguard="soft"), "unknown safeguard 'soft'"),
    ],
)
def test_what_has_no_meaning_together_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
