"""What holds for every file of conf/method under a model in float64, which a block of `kvbench.compress` may hold."""

import copy
from functools import cache

import pytest

from kvbench.evaluation.cache_checks import check_bytes
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.prefill import FullPrefill, PrefillPlan
from tests.support.every_method import LAYERS, N, model, observed, setting
from tests.support.representatives import by_kind
from tests.support.tiny import prompt


@cache
def wide_model():
    return copy.deepcopy(model()).double()


@cache
def wide_pass(plan: PrefillPlan) -> SharedPass:
    return SharedPass(wide_model(), prompt(N), plan, observed(plan == FullPrefill()))


@pytest.mark.parametrize("name", by_kind())
def test_from_prompt_to_answer_in_float64(name):
    """Norms and scales in float32 refused wider numbers; codes were rotated in two dtypes."""
    one = setting(name)
    budget = one.budget_at(N, LAYERS)
    compressed = wide_pass(one.method.plan(N, LAYERS, budget)).compress(one.method, budget)
    check_bytes(compressed.caches)
    assert len(generate(wide_model(), compressed.caches, compressed.logits, 3, frozenset()).tokens) == 3
