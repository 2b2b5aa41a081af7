"""Allocation: the published numbers, exact sums, and how far the official rule overspends."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.methods.allocation.base import largest_remainder
from kvbench.methods.allocation.uniform import Uniform
from kvbench.methods.pyramidkv import Pyramid

OFFICIAL, EXACT, KVPRESS = (Pyramid(alloc=alloc) for alloc in ("official", "exact", "kvpress"))


def test_official_pyramid_of_64_tokens_in_32_layers():
    """Layers keep 118, 115, …, 25; 2288 tokens where 2048 were asked for."""
    tokens = OFFICIAL.tokens(64, 4000, 8, 32)
    assert tokens == [110 - 3 * layer + 8 for layer in range(32)]
    assert (tokens[0], tokens[-1], sum(tokens)) == (118, 25, 2288)


@pytest.mark.parametrize(
    "layers, budget, first, last, mean",
    [
        (32, 64, 118, 25, 71.5),
        (32, 96, 180, 25, 102.5),
        (32, 128, 242, 25, 133.5),
        (32, 256, 492, 27, 259.5),
        (32, 512, 991, 61, 526),
        (32, 1024, 1990, 68, 1029),
        (32, 2048, 3986, 111, 2048.5),
        (80, 64, 118, 39, 78.5),
        (80, 96, 180, 22, 101),
        (80, 128, 242, 84, 163),
        (80, 256, 492, 97, 294.5),
        (80, 512, 991, 43, 517),
        (80, 1024, 1990, 94, 1042),
        (80, 2048, 3986, 115, 2050.5),
    ],
)
def test_official_pyramid_overspends_as_the_released_code_does(layers, budget, first, last, mean):
    tokens = OFFICIAL.tokens(budget, 10**6, 8, layers)
    assert (tokens[0], tokens[-1], sum(tokens) / layers) == (first, last, mean)


@pytest.mark.parametrize(
    "layers, budget, first, last", [(32, 128, 242, 25), (32, 2048, 3986, 235), (80, 2048, 3986, 194)]
)
def test_the_allocation_of_june_2024_divides_its_step_by_all_layers(layers, budget, first, last):
    tokens = Pyramid(alloc="official_2024_06").tokens(budget, 7950, 8, layers)
    assert (tokens[0], tokens[-1]) == (first, last)
    top = (budget - 8) // 20
    step = (2 * (budget - 8) - 2 * top) // layers
    assert [a - b for a, b in pairwise(tokens)] == [step] * (layers - 1)


def test_official_pyramid_is_uniform_for_prompts_under_twice_the_context_budget():
    assert OFFICIAL.tokens(64, 111, 8, 32) == [64] * 32
    assert OFFICIAL.tokens(64, 112, 8, 32) != [64] * 32


def test_exact_pyramid_spends_exactly_the_budget():
    """Shares from 109.2 down to 2.8, integers that sum to 32 · 56 = 1792."""
    tokens = EXACT.tokens(64, 4000, 8, 32)
    assert sum(tokens) - 32 * 8 == 1792
    assert tokens[0] - 8 in (109, 110)
    assert tokens[-1] - 8 in (2, 3)


@given(
    layers=st.integers(1, 80),
    window=st.integers(0, 64),
    context=st.integers(2, 3000),
    share=st.floats(0, 1),
    beta=st.floats(1, 40),
)
def test_exact_pyramid_sums_and_never_rises(layers, window, context, share, beta):
    n = context + window
    budget = window + 1 + int(share * (context - 2))  # window < budget < n
    tokens = Pyramid(beta, "exact").tokens(budget, n, window, layers)
    assert sum(tokens) == layers * budget
    assert tokens == sorted(tokens, reverse=True)
    assert all(window <= t <= n for t in tokens)


@given(layers=st.integers(2, 40), window=st.integers(0, 16), context=st.integers(40, 400), data=st.data())
def test_more_budget_never_takes_from_a_layer_of_the_exact_pyramid(layers, window, context, data):
    n = context + window
    budgets = sorted(data.draw(st.lists(st.integers(window + 1, n - 1), min_size=2, max_size=2)))
    small, large = (EXACT.tokens(budget, n, window, layers) for budget in budgets)
    # largest remainders may move one token between layers; the shares themselves never fall
    assert all(a <= b + 1 for a, b in zip(small, large, strict=True))


@given(layers=st.integers(2, 80), budget=st.integers(9, 2000), n=st.integers(10, 9000))
def test_official_pyramid_never_spends_less_than_asked(layers, budget, n):
    if budget >= n:
        return
    tokens = OFFICIAL.tokens(budget, n, 8, layers)
    assert tokens == sorted(tokens, reverse=True)
    assert sum(tokens) >= layers * budget
    assert tokens[0] <= n


def test_beta_of_one_is_uniform():
    for alloc in ("exact", "official"):
        assert Pyramid(1, alloc).tokens(64, 4000, 8, 32) == [64] * 32


def test_kvpress_falls_back_to_uniform_where_the_top_layer_would_not_hold_the_window():
    assert KVPRESS.tokens(1279, 8000, 64, 32) == [1279] * 32
    tokens = KVPRESS.tokens(1280, 8000, 64, 32)
    assert (tokens[0], tokens[-1]) == (2496, 64)


def test_one_layer_gets_the_budget():
    assert [rule.tokens(50, 100, 8, 1) for rule in (OFFICIAL, EXACT, KVPRESS, Uniform())] == [[50]] * 4


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_largest_remainder_rounds_to_the_total(shares):
    total = round(sum(shares))
    if sum(int(s + 1e-9) for s in shares) > total:
        return
    rounded = largest_remainder(shares, total)
    assert sum(rounded) == total
    assert all(abs(r - s) <= 1 + 1e-9 for r, s in zip(rounded, shares, strict=True))


@pytest.mark.parametrize("bad", [{"alloc": "offical"}, {"beta": 0.5}, {"beta": "20"}])
def test_bad_parameters_are_refused_by_name(bad):
    with pytest.raises(UserError, match=str(*bad.values())):
        Pyramid(**bad)


def test_adakvs_pyramid_is_the_official_one_and_has_no_exception_for_short_prompts():
    official, adakv = Pyramid(alloc="official"), Pyramid(alloc="adakv")
    assert adakv.tokens(128, 700, 32, 32) == official.tokens(128, 700, 32, 32)
    assert official.tokens(128, 180, 32, 32) == [128] * 32
    short = adakv.tokens(128, 180, 32, 32)  # at most 148 tokens to select from, 2 · 96 - 148 = 44 at the top
    assert short == [148 - 3 * layer + 32 for layer in range(32)]
