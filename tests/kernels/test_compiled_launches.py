"""Every kernel, as its operator launches it, compiles for every architecture within its shared memory and registers.

Each architecture has other heads here; scripts/benchmarks/compile_kernels.py compiles all combinations.
"""

import re

import pytest
import torch

from tests.support.kernels import REGISTERS, SHARED, compiled, resources_of
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, compiled]
need("triton", packages("triton", "triton"))

import triton  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from kvbench.ops.kernels.registers import most_registers  # noqa: E402
from tests.support.fake_triton import FakeTriton, target_of  # noqa: E402
from tests.support.kernel_calls import GROUP, Shape, calls, kernel  # noqa: E402

LDS = 65536  # bytes of a workgroup on CDNA2 and CDNA3
SHAPES = {  # architecture -> head_dim, query heads of a group, dtype
    80: (128, 4, torch.bfloat16),
    86: (96, 1, torch.float16),
    89: (64, 8, torch.bfloat16),
    90: (256, 16, torch.bfloat16),
    100: (80, 4, torch.float16),
    120: (128, 8, torch.float16),
}
WIDE = {80: (256, 8, torch.float32), 120: (256, 4, torch.float32)}


@pytest.mark.parametrize("sm, shape", [*SHAPES.items(), *WIDE.items()], ids=[*SHAPES, *(f"{sm}-wide" for sm in WIDE)])
def test_kernels_spill_no_registers_and_a_block_has_enough_of_them_and_of_shared_memory(sm, shape):
    with FakeTriton(sm=sm) as gpu:
        for _, call in calls(Shape(*shape)):
            call()
    assert len({one.name for one in gpu.compilations}) >= (14 if shape[0] % GROUP else 17)
    check(gpu, sm)


def test_the_cover_of_many_vectors_spills_no_registers():
    """Its adjacency has a row of as many bits: 2,048 words."""
    shape = Shape()
    with FakeTriton() as gpu:
        kernel("greedy_covers")(shape.new(1, 65_536, 128), shape.longs(1), shape.longs(1, 65_536), 0.98)
    check(gpu, 90)


def check(gpu: FakeTriton, sm: int) -> None:
    """What was compiled for a GPU is within its registers and its shared memory."""
    for one, needs in {one.key(): (one, resources_of(one, sm)) for one in gpu.compilations}.values():
        assert needs["shared"] <= SHARED[sm], (one.name, needs)
        assert needs["spills"] == 0, (one.name, one.constants, needs)
        threads = 32 * one.options["num_warps"]
        assert -(-needs["registers"] // 8) * 8 * threads <= REGISTERS, (one.name, one.constants, needs)


@pytest.mark.parametrize("name", ["gfx90a", "gfx942"])
def test_kernels_compile_for_amds_gpus_and_spill_nothing_to_memory(name, monkeypatch):
    """Whether they compute the same there is not shown: no kernel has run on such a GPU."""
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with FakeTriton(sm=name) as gpu:
        for _, call in calls(Shape(128, 4, torch.bfloat16)):
            call()
    for one in {one.key(): one for one in gpu.compilations}.values():
        source = ASTSource(fn=one.kernel, signature=one.signature, constexprs=one.constants, attrs=one.attributes)
        made = triton.compile(source, target=target_of(name), options=one.options)
        (scratch,) = re.findall(r"\.private_segment_fixed_size:\s*(\d+)", made.asm["amdgcn"])
        assert int(scratch) == 0 and made.metadata.shared <= LDS, (one.name, scratch, made.metadata.shared)


def test_registers_are_limited_by_an_option_that_only_nvidias_compiler_has(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    assert most_registers(128) == {"maxnreg": 128}
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert most_registers(128) == {}
