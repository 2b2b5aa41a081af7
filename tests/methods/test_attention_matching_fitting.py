"""Least squares of masses and values, and matching pursuit, beside plain loops in float64."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from kvbench.methods.attention_matching.fitting import (
    least_squares,
    mass_weights,
    masses,
    matched_values,
    matching_pursuit,
)

TINY = 1e-14  # a ridge that changes nothing of well-posed problems


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(30, 7), (7, 30)])
def test_least_squares_are_those_of_the_pseudoinverse_for_tall_and_wide_matrices(shape):
    a, b = random(*shape), random(shape[0], 3, seed=1)
    assert_close(least_squares(a, b, TINY), torch.linalg.pinv(a) @ b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(30, 7), (7, 30)])
def test_the_ridge_is_relative_to_the_largest_column_or_of_a_wide_matrix_row(shape):
    a, b = random(*shape), random(shape[0], 3, seed=1)
    scale = a.square().sum(dim=0 if shape[0] > shape[1] else 1).max()
    expected = torch.linalg.solve(a.mT @ a + 0.1 * scale * torch.eye(shape[1], dtype=a.dtype), a.mT @ b)
    assert_close(least_squares(a, b, 0.1), expected)
    assert_close(least_squares(1e3 * a, 1e3 * b, 0.1), expected)


def test_masses_are_exponentials_below_each_querys_largest():
    logits = random(5, 9).float()
    assert_close(masses(logits).log(), logits - logits.amax(dim=1, keepdim=True))


def test_weights_of_a_sum_within_the_bounds_are_found_and_others_end_at_a_bound():
    own, weights = random(40, 3).exp(), torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64)
    assert_close(mass_weights(own, own @ weights, 0.1, 10.0, 0, TINY), weights)
    cut = mass_weights(own, own @ weights, 0.1, 3.0, 0, TINY)
    assert_close(cut, weights.clamp(max=3.0))
    moved = mass_weights(own, own @ weights, 0.1, 3.0, 50, TINY)
    errors = [(own @ found - own @ weights).norm() for found in (cut, moved)]
    assert errors[1] < 0.9 * errors[0] and moved.max() <= 3.0 and moved.min() >= 0.1


def test_values_give_the_outputs_that_their_keys_can_give():
    logits, bias, values = random(50, 6), random(6, seed=1), random(6, 4, seed=2)
    outputs = (logits + bias).softmax(dim=1) @ values
    assert_close(matched_values(logits, bias, outputs, TINY), values, rtol=1e-6, atol=1e-6)


def plain_pursuit(of: Tensor, first: list[int], count: int, step: int, least: float, most: float) -> list[int]:
    chosen, total = list(first), of.sum(dim=1)
    while len(chosen) < count:
        residual = total
        if chosen:
            weights = torch.linalg.lstsq(of[:, chosen], total[:, None]).solution[:, 0].clamp(least, most)
            residual = total - of[:, chosen] @ weights
        products = of.mT @ residual
        products[chosen] = -torch.inf
        chosen += products.topk(min(step, count - len(chosen))).indices.tolist()
    return chosen


@pytest.mark.parametrize("first", [[], [3, 11]])
@pytest.mark.parametrize("step", [1, 3])
def test_matching_pursuit_is_the_plain_loop(step, first):
    of = (2 * random(60, 25)).exp()
    of /= of.amax(dim=1, keepdim=True)
    expected = plain_pursuit(of, first, 16, step, 0.01, 5.0)
    found = matching_pursuit(of, torch.tensor(first, dtype=torch.long), 16, step, 0.01, 5.0, TINY)
    assert found.tolist() == expected


def test_matching_pursuit_of_every_column_takes_each_once():
    of = random(12, 20).exp()  # fewer queries than columns: the last ones fit nothing more
    found = matching_pursuit(of, torch.tensor([], dtype=torch.long), 20, 4, 0.01, 5.0, 1e-6)
    assert sorted(found.tolist()) == list(range(20))
