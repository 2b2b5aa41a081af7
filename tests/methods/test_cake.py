"""CAKE: budgets of layers from the state, tokens by mean and variance, and its constant cache while decoding."""

import pytest
import torch
import torch.nn.functional as F

from kvbench.errors import UserError
from kvbench.methods import CAKE, AdaKV, DecodeCompression, Eviction, FullKV, Kivi, MeanVariance, Preference, Uniform
from kvbench.methods import WindowAttention as Window
from kvbench.methods.selection import Selection, with_window
from tests.support.config import method
from tests.support.tiny import random_layer, random_state

N, BUDGET, WINDOW = 90, 30, 8
SMALL = CAKE(allocation=Preference(WINDOW), scoring=MeanVariance(WINDOW))
OFFICIAL = Preference(WINDOW, alloc="official")


def weight(layer) -> torch.Tensor:
    return Preference(WINDOW).weight(layer, lambda: pytest.fail("it reads no scores"))


def halved(state, keys: float = 0.25):
    """The layers with keys of other lengths, so that their attention differs."""
    for index, layer in enumerate(state.layers):
        layer.keys = layer.keys * (1 + keys * index)
    return state


def sets(chosen: Eviction, state, budget: int) -> list[list[list[int]]]:
    given = chosen if isinstance(chosen.allocation, Uniform) else chosen.for_prompt(state, budget)
    return [given.select(layer, layer.index, len(state.layers), budget).indices.tolist() for layer in state.layers]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_keep_what_their_preference_gives_them_and_all_together_the_budget(dtype):
    state = halved(random_state(4, n=N, window=WINDOW))
    for layer in state.layers:
        layer.keys, layer.values = layer.keys.to(dtype), layer.values.to(dtype)
    weights = [weight(layer).item() for layer in state.layers]
    caches = SMALL.compress(state, BUDGET)
    lengths = [cache.k.view.shape[2] for cache in caches]
    assert lengths == Preference(WINDOW).divide(weights, BUDGET, N, WINDOW)
    assert sum(lengths) == 4 * BUDGET and len(set(lengths)) > 1
    assert [cache.kept.nominal for cache in caches] == lengths


def test_tokens_are_chosen_by_mean_and_variance_pooled():
    layer = random_layer(n=N, window=WINDOW)
    moments = layer.window_moments(WINDOW)
    votes = (moments.mean + 200 * moments.variance)[:, : N - WINDOW]
    votes = F.avg_pool1d(votes[None], 5, stride=1, padding=2)[0].unflatten(0, (2, 3)).mean(1)
    assert torch.allclose(SMALL.scores(layer, WINDOW), votes, rtol=1e-5)


def test_without_variance_and_with_equal_preferences_it_is_snapkv():
    state = random_state(1, n=N, window=WINDOW)
    state.layers *= 3  # one layer three times: equal preferences
    plain = CAKE(allocation=Preference(WINDOW), scoring=MeanVariance(WINDOW, gamma=0.0))
    assert sets(plain, state, BUDGET) == sets(Eviction(scoring=Window(WINDOW, 5, "avg")), state, BUDGET)


@pytest.mark.parametrize("chosen", [SMALL, CAKE(allocation=OFFICIAL, scoring=SMALL.scoring, decode="evict")], ids=str)
def test_a_budget_beyond_prompt_and_answer_is_fullkv(chosen):
    state = random_state(3, n=40, window=WINDOW)
    mine, full = chosen.compress(state, 60), FullKV().compress(state, 60)
    for _ in range(15):
        key, value, query = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8), torch.randn(1, 6, 1, 8)
        for one, other in zip(mine, full, strict=True):
            one.update(key, value)
            other.update(key, value)
            assert torch.equal(one.attend(query, 0.35), other.attend(query, 0.35))


def test_the_released_code_keeps_short_prompts_whole_until_the_first_token():
    state = random_state(3, n=BUDGET + WINDOW, window=WINDOW)
    caches = CAKE(allocation=OFFICIAL, scoring=SMALL.scoring, decode="evict").compress(state, BUDGET)
    assert [cache.k.view.shape[2] for cache in caches] == [BUDGET + WINDOW] * 3
    caches[0].update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
    caches[0].attend(torch.randn(1, 6, 1, 8), 0.35)
    assert caches[0].k.view.shape[2] == BUDGET


def test_while_decoding_each_head_stays_at_its_number_by_the_current_querys_attention():
    chosen = CAKE(allocation=Preference(WINDOW), scoring=SMALL.scoring, decode="evict")
    state = halved(random_state(2, n=N, window=WINDOW))
    for cache, layer in zip(chosen.compress(state, BUDGET), state.layers, strict=True):
        limit, scores = cache.k.view.shape[2], SMALL.scores(layer, WINDOW)
        order = scores.argsort(dim=-1, descending=True, stable=True)[:, : limit - WINDOW]
        keys = torch.cat([layer.keys.gather(1, order[..., None].expand(-1, -1, 8)), layer.keys[:, -WINDOW:]], 1)
        assert torch.equal(cache.k.view[0], keys), "slots are in the order of scores"
        ascending = Selection(with_window(order.sort(dim=-1).values, N, WINDOW), limit)
        assert cache.kept == ascending.kept(layer)
        for _ in range(20):
            key, query = torch.randn(2, 1, 8), torch.randn(6, 1, 8)
            cache.update(key[None], key[None])
            cache.attend(query[None], 0.35)
            keys = torch.cat([keys, key], dim=1)
            weights = (query @ keys.repeat_interleave(3, 0).mT * 0.35).softmax(-1)[:, 0, :-WINDOW]
            weights = F.avg_pool1d(weights[None], 5, stride=1, padding=2)[0].unflatten(0, (2, 3)).mean(1)
            order = weights.argsort(dim=-1, descending=True)[:, : limit - WINDOW]
            keys = torch.cat([keys.gather(1, order[..., None].expand(-1, -1, 8)), keys[:, -WINDOW:]], 1)
            assert torch.equal(cache.k.view[0], keys)


@pytest.mark.parametrize(
    "parts, message",
    [
        ({"storage": Kivi()}, "dense, unfolded storage"),
        ({"heads": AdaKV()}, "equal heads"),
        ({"granularity": "query_head"}, "granularity=kv_head"),
        ({"decode_compression": DecodeCompression()}, "leave decode_compression out"),
    ],
)
def test_what_cannot_drop_a_token_at_each_step_is_refused(parts, message):
    with pytest.raises(UserError, match=message):
        CAKE(decode="evict", **parts)


@pytest.mark.parametrize("parts", [{"heads": AdaKV()}, {"storage": Kivi()}, {"scoring": Window()}], ids=str)
def test_preferences_go_with_other_scorings_heads_and_storages(parts):
    state = halved(random_state(3, n=N, head_dim=32, window=32))
    caches = CAKE(**parts).compress(state, 48)
    assert sum(cache.kept.nominal for cache in caches) == 3 * 48


def test_the_preferences_of_the_prompt_divide_the_budget_while_decoding_too():
    state = halved(random_state(3, n=N, window=WINDOW))
    when = DecodeCompression(every=4, budget=20)
    chosen = CAKE(allocation=Preference(WINDOW), scoring=SMALL.scoring, decode_compression=when)
    weights = [weight(layer).item() for layer in state.layers]
    caches = chosen.compress(state, BUDGET)
    for _ in range(4):
        for cache in caches:
            cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
            cache.attend(torch.randn(1, 6, 1, 8), 0.35)
    expected = Preference(WINDOW).divide(weights, 20, N + 4, WINDOW)
    assert [cache.k.view.shape[2] for cache in caches] == expected and sum(expected) == 60


def test_the_presets_are_the_papers_settings():
    paper = method("cake_paper")
    assert paper.scoring == MeanVariance(32, 5, "avg", 200.0) and paper.allocation == Preference(alloc="official")
    assert paper.decode == "evict" and method("cake").decode == "grow"
