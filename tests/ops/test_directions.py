"""Directions: unit vectors on a grid."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops.directions import GRID, directions, square_sums


@pytest.mark.parametrize("d", [1, 2, 3, 64, 80, 128])
def test_sums_of_squares_are_added_in_one_order(d):
    x = torch.randn(50, d, dtype=torch.float64)
    width = 1 << (d - 1).bit_length()
    terms = [*(x * x).T, *torch.zeros(width - d, 50, dtype=torch.float64)]
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[: len(terms) // 2], terms[len(terms) // 2 :], strict=True)]
    assert square_sums(x).equal(terms[0])
    assert_close(square_sums(x), x.square().sum(-1))


def test_components_are_on_the_grid_and_lengths_one():
    units = directions(torch.randn(40, 80) * torch.logspace(-30, 30, 40)[:, None])
    assert (units * GRID).round().equal(units * GRID)
    assert_close(units.norm(dim=-1), torch.ones(40, dtype=torch.float64), rtol=0, atol=1e-6)
