"""Keys before RoPE by the table of a rotation: the bits of the model's own function."""

import pytest
import torch

from kvbench.methods.spindlekv.ops.rope_table import rope_table
from kvbench.methods.spindlekv.ops.turn_back import turn_back
from kvbench.ops.rope import Rope
from tests.ops.test_rope import LAYOUTS, random_weights, rotated_model
from tests.support.tiny import FAMILIES, tiny_model

KINDS = ["linear", "yarn", "llama3", "proportional"]


def check(model, head_dim, dtype=torch.float32):
    rope = Rope.from_model(model)
    table = rope_table(rope, head_dim)
    x, positions = torch.randn(500, head_dim).to(dtype), torch.randint(3000, (500,))
    before = x.clone()
    turned = turn_back(x, positions, table.turns(rope, 3000, x.device), table.order_on(x.device))
    assert turned.dtype == torch.float32 and turned.equal(rope.rotate(x.float()[None], -positions)[0])
    assert x.equal(before)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_turned_back_as_by_the_models_own_function(family, dtype):
    check(tiny_model(family), 8, dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_with_scaled_frequencies_and_attention_factors(kind):
    check(rotated_model(kind), 16)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_partial_interleaved_and_wide_layouts(layout):
    config = LAYOUTS[layout]
    check(random_weights(config, torch.float32), getattr(config, "head_dim", None) or 16)
