"""SpindleKV's allocation: keep ratios that fall linearly over the layers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.methods import (
    LinearPyramid,
)


def test_the_worked_numbers_of_the_first_branch():
    # n = 8000, w = 32, r = 0.4, 32 layers
    tokens = LinearPyramid().tokens(3200, 8000, 32, 32)
    r_c = (3200 - 32) / (8000 - 32)
    assert r_c == pytest.approx(0.39759, abs=5e-6)
    assert LinearPyramid().ratios(r_c, 32)[0] == pytest.approx(0.74518, abs=5e-6)
    assert tokens[0] - 32 == 5937 and tokens[31] - 32 == 398
    assert sum(tokens) / 32 / 8000 == pytest.approx(0.39994, abs=5e-6)


def test_the_worked_numbers_of_the_second_branch():
    tokens = LinearPyramid().tokens(4800, 8000, 32, 32)
    r_c = (4800 - 32) / (8000 - 32)
    assert r_c == pytest.approx(0.5984, abs=5e-5)
    assert LinearPyramid().ratios(r_c, 32)[31] == pytest.approx(0.19679, abs=5e-6)
    assert tokens[0] - 32 == 7968 and tokens[31] - 32 == 1568


@given(st.floats(0, 1), st.floats(0, 0.9), st.integers(1, 80))
def test_ratios_average_to_what_was_asked_and_stay_within_bounds(r_c, beta, m):
    ratios = LinearPyramid(beta).ratios(r_c, m)
    assert sum(ratios) / m == pytest.approx(r_c, abs=1e-9)
    assert all(a >= b - 1e-12 for a, b in pairwise(ratios))
    assert all(min(beta, r_c) - 1e-9 <= ratio <= 1 + 1e-9 for ratio in ratios)


@pytest.mark.parametrize("beta", [0.0, 0.05, 0.3])
def test_the_branches_meet(beta):
    for knee in (beta, (1 + beta) / 2):
        low, high = (LinearPyramid(beta).ratios(knee + step, 5) for step in (-1e-9, 1e-9))
        assert low == pytest.approx(high, abs=1e-7)
    assert LinearPyramid(beta).ratios(beta / 2, 5) == [beta / 2] * 5


@given(st.integers(9, 400), st.integers(1, 40), st.data())
def test_layers_spend_no_more_than_asked_and_less_by_under_a_token_each(n, m, data):
    budget = data.draw(st.integers(9, n))
    if budget == n:
        return
    tokens = LinearPyramid().tokens(budget, n, 8, m)
    assert m * budget - m < sum(tokens) <= m * budget
    assert all(8 <= count <= n for count in tokens)


@pytest.mark.parametrize("n", [47, 100, 999])
def test_float_noise_costs_no_token(n):
    for budget in range(9, n):
        assert LinearPyramid().tokens(budget, n, 8, 1) == [budget]


def test_below_the_window_only_the_window_is_left():
    assert LinearPyramid().tokens(5, 100, 8, 3) == [8, 8, 8]
