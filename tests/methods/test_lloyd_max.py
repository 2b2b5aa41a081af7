"""The levels of a quantiser of normal numbers."""

import pytest
import torch

from kvbench.methods.turboquant.lloyd_max import midpoints, normal_levels

PUBLISHED = {  # Max 1960, table I: the positive levels
    1: [0.7980],
    2: [0.4528, 1.510],
    3: [0.2451, 0.7560, 1.344, 2.152],
    4: [0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733],
}
ERRORS = {1: 0.3634, 2: 0.1175, 3: 0.0345, 4: 0.0095}


@pytest.mark.parametrize("bits", PUBLISHED)
def test_the_levels_are_the_published_ones_and_symmetric(bits):
    levels = normal_levels(bits)
    assert levels == [-level for level in reversed(levels)]
    assert levels[len(levels) // 2 :] == pytest.approx(PUBLISHED[bits], abs=6e-4)


@pytest.mark.parametrize("bits", ERRORS)
def test_the_squared_error_is_the_known_one(bits):
    x = torch.special.ndtri((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    levels = torch.tensor(normal_levels(bits), dtype=torch.float64)
    nearest = levels[torch.bucketize(x, torch.tensor(midpoints(levels.tolist()), dtype=torch.float64))]
    assert (x - nearest).square().mean().item() == pytest.approx(ERRORS[bits], abs=6e-5)
