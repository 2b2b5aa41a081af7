"""What holds for every file of conf/method at any prompt length, ratio and dtype."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.evaluation.cache_checks import check_bytes
from kvbench.evaluation.decode import generate
from kvbench.prefill.pruned import PrunedPrefill
from tests.support.config import NAMES
from tests.support.every_method import (
    LAYERS,
    PRUNED,
    check_kept,
    model,
    pass_of,
    setting,
    state,
    steps,
)
from tests.support.representatives import REPRESENTATIVES, every_third

pytestmark = pytest.mark.heavy

# around windows, sinks + windows, residuals and the budget
EDGES = [1, 2, 4, 5, 8, 9, 24, 25, 28, 29, 32, 33, 40, 41, 65, 73]


@pytest.mark.parametrize("name", every_third(REPRESENTATIVES))
def test_no_length_of_a_prompt_is_too_short_or_odd(name):
    one = setting(name, budget=40)
    for n in EDGES:
        made = state(n)
        budget = one.budget_at(n, LAYERS)
        caches = one.method.compress(made, budget)
        check_kept(one, caches, n, n if name in PRUNED else budget, made.nbytes)
        assert all(out.isfinite().all() for out in steps(caches, 2))
        check_bytes(caches)
        assert [layer.get_seq_length() for layer in caches] == [n + 2] * LAYERS


@pytest.mark.parametrize("name", PRUNED)
def test_a_pruned_pass_takes_every_length_too(name):
    one = setting(name, 0.3)
    for n in EDGES:
        source, budget = pass_of(one, n)
        compressed = source.compress(one.method, budget)
        check_kept(one, compressed.caches, n, budget, compressed.full_bytes)
        assert len(generate(model(), compressed.caches, compressed.logits, 4, frozenset()).tokens) == 4


@pytest.mark.parametrize("name", every_third(REPRESENTATIVES))
def test_as_shipped_around_published_windows(name):
    """1024 recent tokens, with and without 4 sinks and the decoded token."""
    one = setting(name, 0.2, shipped=True)
    for n in (31, 33, 128, 1024, 1028, 1029):
        made = state(n)
        budget = one.budget_at(n, LAYERS)
        caches = one.method.compress(made, budget)
        check_kept(one, caches, n, n if name in PRUNED else budget, made.nbytes)
        steps(caches, 1)
        check_bytes(caches)


@settings(max_examples=80)
@given(
    name=st.sampled_from(NAMES),
    n=st.integers(1, 140),
    ratio=st.floats(0.01, 1),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_any_length_ratio_and_dtype(name, n, ratio, dtype):
    one = setting(name, ratio)
    made, budget = state(n, dtype), one.budget_at(n, LAYERS)
    outcomes = []
    for _ in range(2):
        caches = one.method.compress(made, budget)
        check_kept(one, caches, n, n if name in PRUNED else budget, made.nbytes)
        outcomes.append(steps(caches, 3, dtype))
        check_bytes(caches)
    assert all(a.isfinite().all() and torch.equal(a, b) for a, b in zip(*outcomes, strict=True))


@settings(max_examples=100)
@given(name=st.sampled_from(NAMES), n=st.integers(1, 2000), ratio=st.floats(0.001, 1), layers=st.integers(1, 40))
def test_a_floor_is_reached_and_no_more_is_asked_than_the_floor(name, n, ratio, layers):
    one = setting(name, ratio, shipped=True)
    requested, budget = one.requested_tokens(n), one.budget_at(n, layers)
    assert budget == max(requested, one.method.floor(n, layers))
    assert replace(one, ratio=1.0).requested_tokens(n) == n
    plan = one.method.plan(n, layers, budget)
    if isinstance(plan, PrunedPrefill) and one.method.takes_budget:
        assert sum(plan.lengths(n)) <= budget * layers
