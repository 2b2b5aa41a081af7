"""CAKE's allocation: shares of the budget by each layer's preference, redistributed until they fit."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.methods import Preference, SimLayerKV, SpindleKV
from kvbench.methods.allocation.base import largest_remainder, water_filled
from kvbench.methods.cake.allocation import spread_once
from kvbench.methods.eviction.eviction import Eviction
from kvbench.prefill import Needs
from tests.support.tiny import random_layer

WEIGHTS = st.lists(st.floats(0, 1e6), min_size=1, max_size=40)


def test_redistribution_by_hand():
    wanted = [900, 499, 10, 10]
    once = spread_once(wanted, 1419, 500)
    assert once == [500, 633, 143, 143] and sum(min(share, 500) for share in once) == 1286
    assert largest_remainder(water_filled(wanted, 500), 1419) == [500, 500, 210, 209]
    weights = [float(share) for share in wanted]
    assert Preference().divide(weights[::-1], 361, 506, 6)[::-1] != [506, 506, 216, 215], "a mean of 355, not 354.75"


@given(WEIGHTS, st.integers(1, 300), st.integers(1, 300), st.integers(0, 40))
def test_shares_fit_the_prompt_and_sum_to_the_budget(weights, free, dropped, window):
    budget, n, m = window + free, window + free + dropped, len(weights)
    tokens = Preference().divide(weights, budget, n, window)
    assert sum(tokens) == m * budget and all(window <= count <= n for count in tokens)
    ranked = [count for _, count in sorted(zip(weights, tokens, strict=True))]
    assert all(low <= high + 1 for low, high in pairwise(ranked))
    official = Preference(alloc="official").divide(weights, budget, n, window)
    assert all(window <= count <= n for count in official)
    assert official == [n] * m if n <= budget + window else sum(official) <= m * budget


@pytest.mark.parametrize("alloc", ["exact", "official"])
def test_equal_preferences_give_the_uniform_budgets(alloc):
    for weight in (0.0, 3.0, 1e-30):
        assert Preference(alloc=alloc).divide([weight] * 7, 40, 200, 8) == [40] * 7


@pytest.mark.parametrize("alloc", ["exact", "official"])
@given(weights=WEIGHTS, power=st.integers(-30, 30))
def test_preferences_times_a_constant_change_nothing(alloc, weights, power):
    allocation = Preference(alloc=alloc)
    scaled = [weight * 2.0**power for weight in weights]
    assert allocation.divide(scaled, 40, 200, 8) == allocation.divide(weights, 40, 200, 8)


def test_the_official_cascade_is_the_last_division_where_no_share_exceeds_the_prompt():
    weights = [3.0, 1.0, 2.0, 2.0]
    assert Preference(alloc="official").divide(weights, 40, 4000, 8) == [56, 24, 40, 40]
    # Alone, the first layer may keep every one of the 60 tokens; the others never raise that again.
    assert Preference(alloc="official").divide([8.0, 1.0, 1.0], 48, 68, 8) == [68, 38, 38]


def test_the_preference_is_entropy_and_variance_of_attention_to_the_tokens_before_the_window():
    layer = random_layer(n=40, window=16)
    moments = layer.window_moments(8)
    entropy, variance = moments.entropy.double().sum(), moments.variance[:, :32].double().sum()
    assert Preference(window=8).weight(layer, list) == entropy * variance
    assert Preference(window=8, tau1=2.0, tau2=0.4).weight(layer, list) == entropy**0.5 * variance**2.5
    assert Preference(window=8).needs == Needs(window=8)


def test_a_method_that_compresses_each_layer_by_itself_refuses_it():
    for make in (lambda part: SimLayerKV(delta=0.9, others=Eviction(part)), lambda part: SpindleKV(allocation=part)):
        with pytest.raises(UserError, match="Preference divides the budget by the states of all layers, but S"):
            make(Preference())
