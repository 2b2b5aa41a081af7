"""Distances from likeliest tokens: a lower bound of the divergence, whatever tokens are left out."""

import math

import numpy as np
import pytest

from kvbench.engines.distance import at_least, compare


def top(probabilities: np.ndarray, count: int) -> dict[str, float]:
    likeliest = np.argsort(-probabilities)[:count]
    return {str(token): math.log(probabilities[token]) for token in likeliest}


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_never_above_the_divergence_and_reaches_it_with_all_tokens(seed):
    generator = np.random.default_rng(seed)
    p, q = (generator.dirichlet(np.full(50, 0.2)) + 1e-9 for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    divergence = float((p * np.log(p / q)).sum())
    bounds = [at_least(top(p, count), top(q, count)) for count in (1, 5, 20, 50)]
    assert all(0 <= bound <= divergence + 1e-9 for bound in bounds)
    assert math.isclose(bounds[-1], divergence, rel_tol=1e-6)


def test_equal_predictions_have_no_distance():
    one = [{"a": -0.1, "b": -3.0}] * 3
    assert compare(one, one) == {"top1": 1, "agreed": 1, "kl_at_least": 0}


def test_agreement_counts_places_and_those_before_the_first_difference():
    a, b = {"a": -0.1, "b": -3.0}, {"a": -3.0, "b": -0.1}
    found = compare([a, a, a, a], [a, b, a, a])
    assert found["top1"] == 0.75 and found["agreed"] == 0.25 and found["kl_at_least"] > 0


def test_nothing_in_common_is_no_measurement():
    assert compare([], []) is None
    assert compare([{"a": -0.1}], [{"token_id:3": -0.1}]) is None
    assert compare([{"a": -0.1}], [{}]) is None
