"""The greedy cover's kernels: the reference's entries."""

import math

import pytest
import torch

from kvbench.methods.spindlekv.ops.greedy_cover import greedy_covers
from kvbench.ops.directions import directions, in_steps
from kvbench.ops.operator import use_kernels
from tests.reference.voting_cover import voting_cover
from tests.support.kernels import interpreted, record_launches
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.methods.spindlekv.ops.kernels import greedy_covers as kernels  # noqa: E402
from kvbench.methods.spindlekv.ops.kernels import neighbour_bits  # noqa: E402

LAUNCHED = ("unit_directions", "adjacency", *["cover"] * (4 * kernels.ROUNDS + 2))


def sets(n, d, noise, dtype, count=3):
    """Vectors around a few centres, some of them equal and some zero."""
    generator = torch.Generator().manual_seed(n + d)
    which = torch.randint(5, (count, n), generator=generator)
    x = torch.randn(5, d, generator=generator)[which] + noise * torch.randn(count, n, d, generator=generator)
    x[:, 1 : n // 4] = 2 * x[:, n // 2 : n // 2 + len(range(1, n // 4))]
    x[:, :: max(n // 3, 1)] = 0
    return x.to(dtype)


def both(x, lengths, counts, theta):
    with use_kernels("torch"):
        expected = greedy_covers(x, lengths, counts, theta)
    with use_kernels("triton"):
        return greedy_covers(x, lengths, counts, theta), expected


@pytest.mark.parametrize("tile", [neighbour_bits.TILE, neighbour_bits.WITHOUT_TENSOR_MEMORY])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n, d, noise, theta", [(70, 64, 0.2, 0.95), (129, 80, 0.1, 0.98), (33, 256, 0.3, 0.8)])
def test_entries_are_the_references(n, d, noise, theta, dtype, tile, monkeypatch):
    monkeypatch.setattr(kernels, "tile", lambda: tile)
    x = sets(n, d, noise, dtype)
    counts = torch.randint(1, 5, (3, n), generator=torch.Generator().manual_seed(0))
    found, expected = both(x, torch.tensor([n, 0, n // 2]), counts, theta)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)
    assert 1 < expected[1][0] < n


@pytest.mark.parametrize("theta", [0.0, 0.3, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("n", [1, 40])
def test_thresholds_at_their_ends_and_equal_directions(n, theta):
    found, expected = both(sets(n, 8, 0.1, torch.float32), torch.full((3,), n), torch.ones(3, n).long(), theta)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)


def test_a_similarity_equal_to_theta_is_not_above_it():
    x = torch.tensor([[[1.0, 0.0], [0.6, 0.8]]])
    cosine = float(directions(x[0])[0] @ directions(x[0])[1])
    counts, length = torch.ones(1, 2).long(), torch.tensor([2])
    assert both(x, length, counts, cosine)[0][1].tolist() == [2]
    assert both(x, length, counts, cosine - 2**-50)[0][1].tolist() == [1]


@pytest.mark.parametrize("d", [2, 80, 128])
@pytest.mark.parametrize("away", [-1e-9, -(2**-50), 0, 1e-9])
def test_similarities_next_to_theta_are_exact(d, away):
    """Tensor cores cannot tell on which side of theta one pair is, in the second tile."""
    assert abs(away) < neighbour_bits.slack(d) < 1e-5  # SLACK of scripts/benchmarks/bench_codebook.py
    x = sets(140, d, 0.2, torch.float32, count=1)
    units = directions(x[0])
    theta = float(units[133] @ units[5]) + away
    found, expected = both(x, torch.tensor([140]), torch.ones(1, 140).long(), theta)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)
    assert both(x[:, [5, 133]], torch.tensor([2]), torch.ones(1, 2).long(), theta)[0][1].tolist() == [
        1 if away < 0 else 2
    ]


def test_short_vectors_are_neighbours_of_equal_ones():
    """Shorter than the smallest normal number, they are no unit vectors: only equality makes them neighbours."""
    x = torch.zeros(1, 6, 8)
    x[0, 1, 0] = x[0, 3, 0] = 2.0**-140
    x[0, 2, 0] = x[0, 5, 0] = 1.0
    found, expected = both(x, torch.tensor([6]), torch.ones(1, 6).long(), 0.9)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)
    assert expected[2].tolist() == [[0, 1, 2, 1, 0, 2]]


@pytest.mark.parametrize("d", [2, 16, 80, 256])
def test_halves_are_as_near_as_their_bound_says(d):
    n, padded = 64, max(d, kernels.LANES)
    generator = torch.Generator().manual_seed(d)
    x = torch.randn(n, d, generator=generator)
    x[: n // 2] = x[: n // 2].sign() + 0.001 * x[: n // 2]  # whose second halves are alike
    steps, halves = torch.empty(n, d, dtype=torch.int32), torch.empty(n, 2, padded, dtype=torch.float16)
    numbers, most = torch.zeros(3, n, dtype=torch.int32), torch.zeros(2, 1, dtype=torch.int32)
    owners, ones = torch.zeros(n).long(), torch.ones(n).long()
    kernels.unit_directions[(n // 16, 1)](
        x, torch.tensor([n]), ones, steps, halves, *numbers, owners, *most, n, D=d, PADDED=padded, WIDTH=256, ROWS=16
    )
    assert steps.equal(in_steps(x).int())
    upper, lower = halves.double().unbind(1)
    near = (upper @ upper.T + (upper @ lower.T + lower @ upper.T) / 2**14) / 2**22
    units = directions(x)
    assert 0 < (near - units @ units.T).abs().max() < neighbour_bits.slack(d)


def test_more_rounds_than_programs_share():
    """Vectors on an arc that grows denser: a pick waits for those before it."""
    n = 200
    angles = torch.linspace(1, 0.2, n).cumsum(0) / 40
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    theta = math.cos(0.05)
    assert len(voting_cover(x, theta).votes) > kernels.ROUNDS + 1
    found, expected = both(x[None], torch.tensor([n]), torch.ones(1, n).long(), theta)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)


def test_launches_do_not_depend_on_the_vectors(monkeypatch):
    launched = record_launches(monkeypatch, kernels, *dict.fromkeys(LAUNCHED))
    both(sets(20, 8, 0.1, torch.float32), torch.full((3,), 20), torch.ones(3, 20).long(), 0.9)
    assert tuple(launched) == LAUNCHED
