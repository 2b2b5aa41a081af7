"""Scores from keys, values and moments: Random, KNorm, KeyDiff, TOVA's last query, Expected Attention."""

import math

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import (
    Eviction,
    ExpectedAttention,
    KeyDiff,
    KNorm,
    LastQuery,
    Random,
    SkipLayers,
    Uniform,
    WindowAttention,
)
from kvbench.ops.rope import Rope
from kvbench.prefill.query_moments import QueryMoments
from tests.support.my_method import KeyNorm
from tests.support.tiny import random_layer, tiny_model

FLOATS = "it must be a floating-point tensor [num_attention_heads, n], here [4, 40]"
BY_KV_HEAD = [Random(), KNorm(), KeyDiff(), ExpectedAttention()]


def layer_of(n=40, **options):
    return random_layer(n=n, rope=Rope.from_model(tiny_model()), **options)


def kept(scoring, layer, budget, **options) -> list[list[int]]:
    return Eviction(scoring=scoring, **options).select(layer, layer.index, 4, budget).indices.tolist()


@pytest.mark.parametrize("scoring", BY_KV_HEAD, ids=lambda s: type(s).__name__)
def test_scores_of_kv_heads_are_refused_for_query_heads_that_choose_for_themselves(scoring):
    with pytest.raises(UserError, match="needs granularity=kv_head or layer, not query_head"):
        Eviction(scoring=scoring, granularity="query_head")
    assert scoring.votes(layer_of()).shape == (2, 40)


@pytest.mark.parametrize("scoring", [*BY_KV_HEAD, LastQuery()], ids=lambda s: type(s).__name__)
def test_one_set_for_a_layer_is_that_of_the_mean_over_its_heads(scoring):
    layer = layer_of()
    votes = scoring.votes(layer).double().mean(0)
    (chosen,) = kept(scoring, layer, 12, granularity="layer")
    assert len(chosen) == 12 and votes[chosen].min() >= votes[[i for i in range(40) if i not in chosen]].max()


def test_random_tokens_depend_on_seed_layer_and_length_alone():
    one, other = layer_of(seed=1), layer_of(seed=2)
    assert kept(Random(), one, 10) == kept(Random(), other, 10)
    assert kept(Random(), one, 10) != kept(Random(seed=1), one, 10)
    one.index = 1
    assert kept(Random(), one, 10) != kept(Random(), other, 10)
    first, second = kept(Random(), other, 10)
    assert first != second
    first, second = kept(Random(scope="layer"), other, 10)
    assert first == second


def test_random_tokens_are_nested_and_each_is_kept_as_often_as_the_budget_says():
    layer = layer_of()
    counts = torch.zeros(40)
    for seed in range(400):
        (few, _), (many, _) = kept(Random(seed=seed), layer, 10), kept(Random(seed=seed), layer, 20)
        assert set(few) < set(many)
        counts[few] += 1
    deviation = math.sqrt(400 * 0.25 * 0.75)
    assert (counts - 100).abs().max() < 4 * deviation


def test_random_tokens_with_protected_ends():
    for row in kept(Random(sinks=4, window=8), layer_of(), 13):
        assert row[:4] == [0, 1, 2, 3] and row[-8:] == list(range(32, 40)) and len(row) == 13
    assert Eviction(scoring=Random(sinks=4, window=8)).minimum_budget == 13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_knorm_keeps_the_shortest_keys_before_and_after_rope(dtype):
    layer = layer_of(dtype=dtype)
    norms = layer.keys.float().square().sum(-1)
    for head, row in enumerate(kept(KNorm(), layer, 9)):
        assert sorted(row) == sorted(norms[head].argsort()[:9].tolist())
    plain = layer_of()
    before = kept(KNorm(), plain, 9)
    plain.keys = plain.rope.rotate(plain.keys, -torch.arange(40))
    assert kept(KNorm(), plain, 9) == before


def test_keydiff_keeps_what_is_unlike_the_mean_direction_whatever_its_length():
    layer = layer_of()
    layer.keys[:] = torch.tensor([1.0, 0, 0, 0, 0, 0, 0, 0]) + 0.01 * layer.keys
    layer.keys[:, 7] = torch.tensor([0.0, 1, 0, 0, 0, 0, 0, 0])
    layer.keys[:, 21] *= -5
    assert kept(KeyDiff(), layer, 2) == [[7, 21], [7, 21]]
    votes = KeyDiff().votes(layer)
    layer.keys *= torch.rand(2, 40, 1) + 0.1
    torch.testing.assert_close(KeyDiff().votes(layer), votes)
    layer.keys[:] = torch.tensor([0.0, 2, 0, 0, 0, 0, 0, 0])  # of one channel: norms, means and products are exact
    assert kept(KeyDiff(), layer, 3) == [[0, 1, 2], [0, 1, 2]]  # all alike: the first


def test_the_last_query_chooses_and_nothing_is_protected():
    layer = layer_of(window=1)
    layer.keys[:, -1] = -5 * layer.queries.unflatten(0, (2, 3))[:, :, 0].mean(1)  # the last key repels the last query
    logits = torch.einsum("hd,hnd->hn", layer.queries[:, 0], layer.keys.repeat_interleave(3, 0)) * layer.scaling
    (row,) = kept(LastQuery(), layer, 5, granularity="layer")
    assert row == sorted(logits.softmax(-1).mean(0).topk(5).indices.tolist()) and 39 not in row


def test_tova_is_snapkv_with_a_window_of_one_where_the_last_token_stays():
    layer = layer_of(window=1)
    layer.keys[:, -1] = 5 * layer.queries.unflatten(0, (2, 3))[:, :, 0].mean(1)
    snapkv = kept(WindowAttention(window=1, kernel=1), layer, 6, granularity="layer")
    assert kept(LastQuery(), layer, 6, granularity="layer") == snapkv


def test_expected_attention_without_covariance_ranks_by_the_mean_query_at_future_positions():
    layer = layer_of()
    scoring = ExpectedAttention(covariance=False, value_norm=False, sinks=4, future=16)
    positions = torch.arange(40, 56)
    mean = layer.query_moments[4].mean
    turned = layer.rope.rotate(mean[:, None].expand(-1, 16, -1), positions).mean(1)  # [heads, head_dim]
    logits = torch.einsum("hd,hnd->hn", turned, layer.keys.repeat_interleave(3, 0)) * layer.scaling
    attention = logits[:, 4:].softmax(-1).unflatten(0, (2, 3)).mean(1)
    torch.testing.assert_close(scoring.votes(layer)[:, 4:], attention)
    assert scoring.votes(layer)[:, :4].isinf().all()
    for row in kept(scoring, layer, 10):
        assert row[:4] == [0, 1, 2, 3] and len(row) == 10


def test_expected_logits_are_those_of_gaussian_queries():
    """E exp(s·q·k) over the rotated Gaussian is exp(z), within the error of a sample of 200,000."""
    layer = layer_of(heads=2, kv_heads=1)
    scoring = ExpectedAttention(future=1, sinks=0)
    root = 0.3 * torch.randn(2, 8, 8)
    layer.query_moments[0] = QueryMoments(0.3 * torch.randn(2, 8), root @ root.mT, 100)
    drawn = layer.query_moments[0].mean[:, None] + torch.randn(2, 200_000, 8) @ root.mT
    drawn = layer.rope.rotate(drawn, torch.full((200_000,), 40))
    sampled = (drawn @ layer.keys.mT * layer.scaling).exp().mean(1).log()
    torch.testing.assert_close(scoring.expected_logits(layer)[0], sampled, rtol=0, atol=0.03)


def test_expected_attention_of_long_prompts_is_summed_in_tiles(monkeypatch):
    layer = layer_of()
    whole = ExpectedAttention().votes(layer)
    monkeypatch.setattr("kvbench.methods.expected_attention.TILE", 7)
    torch.testing.assert_close(ExpectedAttention().votes(layer), whole)


def test_values_speak_through_epsilon_where_no_attention_is_expected():
    layer = layer_of()
    layer.keys *= 0
    layer.keys[:, 10] = 100 * layer.query_moments[4].mean.unflatten(0, (2, 3)).mean(1)
    layer.values *= 1e-3
    layer.values[:, 30] = 50
    votes = ExpectedAttention(epsilon=0.01).votes(layer)
    assert (votes[:, 30] == votes[:, 4:].amax(1)).all()


def test_skipped_layers_stay_whole_and_the_others_give_it_back_on_request():
    n, budget = 8192, 819
    tokens = SkipLayers().tokens(budget, n, 0, 32)
    assert tokens[:2] == [n, n] and set(tokens[2:]) == {budget}
    assert sum(tokens) / (32 * n) == pytest.approx(0.1562, abs=1e-4)  # of a nominal 0.1
    spread = SkipLayers([0, 1], spread=True).tokens(budget, n, 0, 32)
    assert sum(spread) == 32 * budget and max(spread[2:]) - min(spread[2:]) <= 1
    assert SkipLayers([], spread=True).tokens(budget, n, 0, 32) == list(Uniform().tokens(budget, n, 0, 32))
    assert min(SkipLayers([0, 1], spread=True).tokens(100, n, 8, 32)) == 9  # nothing more to give back
    assert SkipLayers([0], spread=True).overspends and not SkipLayers([]).overspends
    with pytest.raises(UserError, match="some of this model's layers 0 to 1, and not all"):
        SkipLayers([0, 1]).tokens(10, 100, 0, 2)


@pytest.mark.parametrize(
    ("votes", "line"),
    [
        (lambda x: x.long(), f"returned torch.int64 [4, 40]: with per_query_head = True {FLOATS}"),
        (lambda x: x > 0, f"returned torch.bool [4, 40]: with per_query_head = True {FLOATS}"),
        (lambda x: x[::2], f"returned torch.float32 [2, 40]: with per_query_head = True {FLOATS}"),
        (lambda x: x[:, 1:], f"returned torch.float32 [4, 39]: with per_query_head = True {FLOATS}"),
        (lambda x: x.tolist()[0][0], FLOATS),
        (lambda x: x.to("meta"), "returned a tensor on meta: it must be on the device of the keys, here cpu"),
        (lambda x: None, f"{FLOATS}; an observation that `needs` does not list is None"),
    ],
)
def test_votes_of_another_shape_type_or_device_are_one_line(votes, line):
    class Votes(KeyNorm):
        def votes(self, layer):
            return votes(super().votes(layer))

    with pytest.raises(UserError, match=r"^Votes.votes returned ") as error:
        Eviction(scoring=Votes()).select(layer_of(heads=4, kv_heads=2), 0, 4, 20)
    assert line in str(error.value)


def test_votes_of_kv_heads_and_in_half_precision_are_taken():
    class Half(KeyNorm):
        per_query_head = False

        def votes(self, layer):
            return super().votes(layer)[::2].half()

    layer = layer_of(heads=4, kv_heads=2)
    expected = Eviction(scoring=KeyNorm()).select(layer, 0, 4, 20).indices
    assert Half().votes_of(layer).shape == (2, 40)
    assert Eviction(scoring=Half()).select(layer, 0, 4, 20).indices.shape == expected.shape


@pytest.mark.parametrize("window", [0.1, -1, None, "8"])
def test_a_window_that_is_no_number_of_tokens_is_one_line(window):
    class Window(KeyNorm):
        def protected(self, budget):
            return window if budget == 20 else 8

    method = Eviction(scoring=Window())
    with pytest.raises(
        UserError, match=r"^Window.protected returned .* it must be an integer of at least 0, the number"
    ):
        method.select(layer_of(), 0, 4, 20)


def test_a_window_that_is_no_number_is_found_before_a_run():
    class Tenth(KeyNorm):
        def protected(self, budget):
            return 0.1 * budget

    with pytest.raises(UserError, match=r"^Tenth.protected returned 0.1 for a budget of 1: "):
        _ = Eviction(scoring=Tenth()).minimum_budget
