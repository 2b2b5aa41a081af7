"""Keys before RoPE in Triton: the reference's bits."""

import pytest
import torch

from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.methods.spindlekv.ops.turn_back import turn_back
from kvbench.ops.operator import use_kernels
from kvbench.ops.rope import Rope
from tests.ops.test_rope import LAYOUTS, random_weights
from tests.support.kernels import interpreted
from tests.support.needs import need, packages
from tests.support.tiny import tiny_model

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))


def agrees(model, head_dim, rows=37, dtype=torch.float32):
    rope = Rope.from_model(model)
    table = rope_table(rope, head_dim)
    x, positions = torch.randn(rows, head_dim).to(dtype), torch.randint(90, (rows,))
    call = x, positions, table.turns(rope, 90, x.device), table.order
    with use_kernels("torch"):
        expected = turn_back(*call)
    with use_kernels("triton"):
        assert turn_back(*call).equal(expected)


@pytest.mark.parametrize("rows", [0, 1, 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_number_of_rows_is_turned_back(rows, dtype):
    agrees(tiny_model(), 8, rows, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partial_interleaved_and_wide_layouts(layout):
    config = LAYOUTS[layout]
    agrees(random_weights(config, torch.float32), getattr(config, "head_dim", None) or 16)
