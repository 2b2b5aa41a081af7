"""Keys before RoPE in Triton: the reference's bits, one launch, no spilled registers."""

import pytest
import torch

from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.methods.spindlekv.ops.turn_back import turn_back
from kvbench.ops.operator import LAUNCHES, use_kernels
from kvbench.ops.rope import Rope
from tests.ops.test_rope import LAYOUTS, random_weights
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources
from tests.support.needs import need, packages
from tests.support.tiny import tiny_model

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.methods.spindlekv.ops.kernels import turn_back as kernels  # noqa: E402


def agrees(model, head_dim, rows=37, dtype=torch.float32):
    rope = Rope.of(model)
    table = rope_table(rope, head_dim)
    x, positions = torch.randn(rows, head_dim).to(dtype), torch.randint(90, (rows,))
    call = x, positions, table.turns(rope, 90, x.device), table.order
    with use_kernels("torch"):
        expected = turn_back(*call)
    with use_kernels("triton"):
        assert turn_back(*call).equal(expected)


@interpreted
@pytest.mark.parametrize("rows", [0, 1, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_number_of_rows_is_turned_back(rows, dtype):
    agrees(tiny_model(), 8, rows, dtype)


@interpreted
@pytest.mark.parametrize("layout", LAYOUTS)
def test_partial_interleaved_and_wide_layouts(layout):
    config = LAYOUTS[layout]
    agrees(random_weights(config, torch.float32), getattr(config, "head_dim", None) or 16)


@interpreted
def test_a_call_launches_what_the_operator_says(monkeypatch):
    launched = record_launches(monkeypatch, kernels, "turn_back_kernel")
    agrees(tiny_model(), 8)
    assert len(launched) == LAUNCHES["turn_back"]


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_nothing_spills(sm):
    signature = {"x": "*bf16", "positions": "*i64", "turns": "*fp32", "order": "*i64", "out": "*fp32", "rows": "i32"}
    constants = {"D": 128, "PAIRS": 64, "ROWS": kernels.ROWS, "HALF": 64}
    used = resources(kernels.turn_back_kernel, signature, constants, sm, enable_fp_fusion=False)
    assert used["spills"] == 0
