"""PyramidInfer's lengths: published ratios, schedules, budgets."""

from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.methods import PyramidInfer


def test_the_official_lengths_at_4096_tokens():
    method = PyramidInfer(schedule="cosine", recent_ratio=0.2, decay=0.9)
    lengths = method.plan(4096, 32, 4096).lengths(4096)
    assert [lengths[layer] for layer in (0, 8, 16, 31)] == [4096, 3985, 3313, 1541]
    assert round(fmean(lengths) / 4096, 3) == 0.766


@pytest.mark.parametrize(
    "layers, decay, interval, expected", [(40, 0.8, 2, 0.724), (80, 0.9, 3, 0.781), (32, 0.3, 1, 0.499)]
)
def test_the_official_ratios_of_larger_models(layers, decay, interval, expected):
    method = PyramidInfer(schedule="cosine", recent_ratio=0.2, decay=decay, interval=interval)
    assert fmean(method.plan(8000, layers, 8000).lengths(8000)) / 8000 == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    "recent, expected",
    [
        (0.05, [0.528, 0.336, 0.247, 0.200, 0.153, 0.130, 0.121]),
        (0.1, [0.553, 0.371, 0.287, 0.243, 0.198, 0.176, 0.167]),
        (0.2, [0.603, 0.441, 0.366, 0.327, 0.289, 0.271, 0.259]),
    ],
)
def test_ratios_of_the_constant_schedule_at_8000_tokens(recent, expected):
    for decay, ratio in zip([0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5], expected, strict=True):
        method = PyramidInfer(schedule="constant", recent_ratio=recent, decay=decay)
        assert fmean(method.plan(8000, 32, 8000).lengths(8000)) / 8000 == pytest.approx(ratio, abs=6e-4)


@given(
    n=st.integers(1, 3000),
    layers=st.integers(1, 40),
    schedule=st.sampled_from(["cosine", "constant"]),
    recent=st.floats(0, 0.95),
    decay=st.floats(0.01, 1),
    min_ctx=st.integers(4, 200),
    interval=st.integers(1, 4),
)
def test_lengths_start_full_and_never_rise(n, layers, schedule, recent, decay, min_ctx, interval):
    method = PyramidInfer(schedule, recent, decay, min_ctx, interval)
    plan = method.plan(n, layers, n)
    lengths = plan.lengths(n)
    assert lengths[0] == n and len(lengths) == layers
    assert all(a >= b for a, b in pairwise(lengths))
    assert lengths[-1] >= min(n, plan.tail + min_ctx)
    assert all(a == b for i, (a, b) in enumerate(pairwise(lengths)) if i % interval)


@given(n=st.integers(1000, 9000), share=st.floats(0.3, 0.99), layers=st.integers(8, 80))
def test_bisection_meets_the_budget_from_below(n, share, layers):
    budget = int(share * n)
    lengths = PyramidInfer(recent_ratio=0.05).plan(n, layers, budget).lengths(n)
    assert budget - 0.01 * n - 1 <= fmean(lengths) <= budget


@pytest.mark.parametrize(("recent", "least"), [(0.05, "0.37"), (0.2, "0.47")])
def test_the_least_ratio_of_the_cosine_is_the_one_that_the_docstring_gives(recent, least):
    assert f"{PyramidInfer(schedule='cosine', recent_ratio=recent).floor(8000, 32) / 8000:.2f}" == least
    assert PyramidInfer.__doc__ and least in PyramidInfer.__doc__


@pytest.mark.parametrize(
    "schedule, recent, min_ctx", [("cosine", 0.2, 64), ("constant", 0.05, 64), ("constant", 0.5, 0)]
)
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 70, 200, 1000])
def test_an_unreachable_ratio_gets_the_fewest_tokens_that_any_decay_reaches(n, schedule, recent, min_ctx):
    method = PyramidInfer(schedule, recent, min_ctx=min_ctx, sinks=0)
    decays = [step / 1000 for step in range(1, 1001)]
    fewest = min(sum(PyramidInfer(schedule, recent, d, min_ctx, sinks=0).plan(n, 32, n).lengths(n)) for d in decays)
    floor = method.floor(n, 32)
    assert floor == -(-fewest // 32)
    assert sum(method.plan(n, 32, floor).lengths(n)) <= floor * 32
    assert sum(method.plan(n, 32, 1).lengths(n)) == fewest  # asked directly, below its floor
    assert PyramidInfer(schedule, recent, decay=0.5, min_ctx=min_ctx, sinks=0).floor(n, 32) == 1  # no ratio is asked
