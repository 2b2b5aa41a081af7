"""Fixed rotations: orthogonal, reproducible, and what they make of vectors with one loud or no quiet channel."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.errors import UserError
from kvbench.ops.rotation import rotation

CPU = torch.device("cpu")
KINDS = ("haar", "hadamard", "plain_hadamard")


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_orthogonal(kind):
    made = rotation(kind, 64, 3, CPU)
    assert_close(made @ made.T, torch.eye(64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["haar", "hadamard"])
def test_a_seed_makes_it(kind):
    first = rotation(kind, 32, 1, CPU)
    rotation.cache_clear()
    assert torch.equal(first, rotation(kind, 32, 1, CPU))
    assert not torch.equal(first, rotation(kind, 32, 2, CPU))


def test_only_signs_keep_a_constant_vector_from_one_channel():
    constant = torch.full((64,), 0.125)
    assert (rotation("plain_hadamard", 64, 0, CPU) @ constant).abs().max() == pytest.approx(1)
    assert (rotation("hadamard", 64, 0, CPU) @ constant).abs().max() < 0.5


def test_a_width_that_is_no_power_of_two_is_refused_in_a_line():
    with pytest.raises(UserError, match="a power of two, not 96: use haar"):
        rotation("hadamard", 96, 0, CPU)
    assert rotation("haar", 96, 0, CPU).shape == (96, 96)
