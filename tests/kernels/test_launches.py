"""What operators launch and where: as many kernels as they say, on the GPU of their tensors, in grids of any prompt."""

import re

import pytest
import torch

from kvbench.ops.operator import LAUNCHES, use_kernels
from tests.support.fake_devices import FakeDevices, stamped
from tests.support.kernels import compiled
from tests.support.launches import Counts, Dispatched
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, compiled]
need("triton", packages("triton", "triton"))

from tests.support.fake_triton import MOST_PROGRAMS, FakeTriton  # noqa: E402
from tests.support.kernel_calls import Shape, calls, kernel  # noqa: E402

LONG = 131_072


def kernels_of(shape: Shape) -> FakeTriton:
    with FakeTriton() as gpu:
        for _, call in calls(shape):
            call()
    return gpu


def test_a_call_launches_as_many_kernels_as_its_operator_says():
    """Triton's, and those of torch around them."""
    called = set()
    for form, call in calls(Shape()):
        torchs = Dispatched(Counts())
        torchs.on_gpu = True
        with FakeTriton() as gpu, torchs:
            call()
        called.add(name := re.match(r"\w+", form)[0])
        assert len(gpu.launches) + torchs.counts.kernels == LAUNCHES[name], (form, torchs.counts.names)
    assert called == {name for name in LAUNCHES if not name.startswith("_test")}


@pytest.mark.parametrize("rows, kv_heads, group", [(1, 8, 4), (12, 8, 4), (12, 32, 1)])
def test_grids_of_long_prompts_are_within_cudas_limits(rows, kv_heads, group):
    gpu = kernels_of(Shape(tokens=LONG, rows=rows, kv_heads=kv_heads, group=group))
    assert len({launch.kernel for launch in gpu.launches}) == 18
    beyond = {x for x in gpu.launches if any(a > b for a, b in zip(x.grid, MOST_PROGRAMS, strict=True))}
    assert not beyond


def test_rows_of_all_heads_behind_each_other_may_be_many():
    """Ragged heads are quantised as one head that has the tokens of all."""
    shape = Shape()
    with FakeTriton() as gpu:
        for axis in (1, 2):
            stored = kernel("quantise")(shape.new(1, 12 * 32 * LONG, 128), 4, 32, axis)
            kernel("dequantise")(*stored, 4, 32, axis)
    assert max(launch.grid[0] for launch in gpu.launches) == 12 * 32 * LONG
    assert all(max(launch.grid[1:]) <= 65535 for launch in gpu.launches)


@pytest.mark.parametrize("index", [0, 1])
def test_a_kernel_runs_on_the_gpu_of_its_tensors(index):
    """One operator for all: the guard is theirs in common."""
    from kvbench.methods.spindlekv.ops.turn_back import turn_back

    with FakeDevices() as fake, FakeTriton(lambda: fake.current) as gpu, use_kernels("triton"):
        device = torch.device("cuda", index)
        x, positions, turns = torch.zeros(32, 64), torch.zeros(32).long(), torch.zeros(40, 32, 2)
        turn_back(*stamped([x, positions, turns, torch.arange(64)], device))
        assert [launch.device for launch in gpu.launches] == [index] * LAUNCHES["turn_back"]
        assert fake.current == 0
