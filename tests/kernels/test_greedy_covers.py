"""The greedy cover's kernels: the reference's entries under the interpreter, and no spills when compiled."""

import pytest
import torch

from kvbench.ops.directions import directions
from kvbench.ops.greedy_cover import greedy_covers
from kvbench.ops.operator import use_kernels
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources

pytest.importorskip("triton")
pytestmark = pytest.mark.kernels

from kvbench.ops.kernels import greedy_covers as kernels  # noqa: E402

LAUNCHED = ("unit_directions", "adjacency", "cover")


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


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n, d, noise, theta", [(70, 64, 0.2, 0.95), (129, 80, 0.1, 0.98), (33, 256, 0.3, 0.8)])
def test_entries_are_the_references(n, d, noise, theta, dtype):
    x = sets(n, d, noise, dtype)
    counts = torch.randint(1, 5, (3, n), generator=torch.Generator().manual_seed(0))
    found, expected = both(x, torch.tensor([n, 0, n // 2]), counts, theta)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)
    assert 1 < expected[1][0] < n


@interpreted
@pytest.mark.parametrize("theta", [0.0, 0.3, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("n", [1, 40])
def test_thresholds_at_their_ends_and_equal_directions(n, theta):
    found, expected = both(sets(n, 8, 0.1, torch.float32), torch.full((3,), n), torch.ones(3, n).long(), theta)
    for one, other in zip(found, expected, strict=True):
        assert one.equal(other)


@interpreted
def test_a_similarity_equal_to_theta_is_not_above_it():
    x = torch.tensor([[[1.0, 0.0], [0.6, 0.8]]])
    cosine = float(directions(x[0])[0] @ directions(x[0])[1])
    counts, length = torch.ones(1, 2).long(), torch.tensor([2])
    assert both(x, length, counts, cosine)[0][1].tolist() == [2]
    assert both(x, length, counts, cosine - 2**-50)[0][1].tolist() == [1]


@interpreted
def test_a_layer_takes_three_kernels(monkeypatch):
    launched = record_launches(monkeypatch, kernels, *LAUNCHED)
    both(sets(20, 8, 0.1, torch.float32), torch.full((3,), 20), torch.ones(3, 20).long(), 0.9)
    assert tuple(launched) == LAUNCHED


TYPES = {"squares": "*fp64", "units": "*fp64", "lengths": "*i64", "counts": "*i64", "owners": "*i64", "limit": "i64"}
TYPES |= {name: "*i32" for name in ("bits", "degrees", "picked", "members")}


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize(
    "name, constants, options",
    [
        ("unit_directions", {"D": 80, "WIDTH": 128, "ROWS": 16}, {}),
        ("unit_directions", {"D": 256, "WIDTH": 256, "ROWS": 16}, {}),
        ("adjacency", {"D": 128, "TILE": kernels.TILE, "LANES": 16}, {}),
        ("cover", {"MEMBERS": kernels.MEMBERS, "WORDS": kernels.WORDS}, {"num_warps": kernels.WARPS}),
    ],
)
def test_nothing_spills(name, constants, options, sm):
    kernel = getattr(kernels, name)
    signature = {arg: TYPES.get(arg, "*bf16" if arg == "x" else "i32") for arg in kernel.arg_names}
    used = resources(kernel, signature, constants, sm, **options)
    assert used["spills"] == 0, used
    assert used["shared"] <= 99 * 1024, used
