"""The table of a rotation turns vectors as the model's own function does, whatever its layout of channels."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kvbench.errors import UserError
from kvbench.methods.spindlekv.ops.rope_table import RopeTable, rope_table, unturn
from kvbench.ops.rope import Rope
from tests.ops.test_rope import LAYOUTS, random_weights, rotated_model
from tests.support.tiny import FAMILIES, tiny_model


def check(model, head_dim):
    rope = Rope.from_model(model)
    table = rope_table(rope, head_dim)
    x, positions = torch.randn(40, head_dim), torch.randint(2000, (40,))
    expected = rope.rotate(x[None], positions)[0]
    turns = table.turns(rope, 2000, x.device)[positions]
    back = turns * torch.tensor([1.0, -1.0])
    assert unturn(table.pair(x), back).allclose(table.pair(expected), atol=1e-5)
    assert unturn(table.pair(expected), turns).allclose(table.pair(x), atol=1e-5)
    return table


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_rotates_as_the_models_own_function(family):
    table = check(tiny_model(family), 8)
    assert table.order.tolist() == [0, 4, 1, 5, 2, 6, 3, 7] and table.turned == 8


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3", "proportional"])
def test_scaled_frequencies_and_attention_factors_are_in_the_table(kind):
    check(rotated_model(kind), 16)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partial_interleaved_and_wide_layouts_have_their_pairs(layout):
    config = LAYOUTS[layout]
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    table = check(random_weights(config, torch.float32), head_dim)
    turned = {"partial": head_dim // 2, "interleaved": head_dim // 2, "wide": head_dim}[layout]
    assert table.turned == turned and table.order[turned:].tolist() == list(range(turned, head_dim))
    if layout == "interleaved":
        assert table.order.tolist() == list(range(head_dim))


def test_one_table_serves_all_layers_and_copies_and_grows_with_the_positions():
    rope = Rope.from_model(tiny_model())
    table, cpu = rope_table(rope, 8), torch.device("cpu")
    assert rope_table(copy.deepcopy(rope), 8) is table
    short = table.turns(rope, 5, cpu)
    assert table.turns(rope, len(short), cpu) is short
    long = table.turns(rope, len(short) + 1, cpu)
    assert len(long) > len(short) and long[: len(short)].equal(short)


def test_a_rotation_that_is_not_by_pairs_is_refused():
    rope = Rope.from_model(tiny_model())
    mixing = Rope(rope.embedding, lambda q, k, cos, sin: (q.flip(-1) * cos + q.roll(1, -1) * sin + q, k))
    with pytest.raises(UserError, match="pairs of channels"):
        RopeTable(mixing, 8)


def test_rotations_are_undone_below_a_dispatch_mode_too():
    """There torch overlooks that a tensor is marked as conjugate; `make gpu` computes references there."""

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            backs.append(unturn(x.clone(), turns))
            return func(*args, **(kwargs or {}))

    backs: list[torch.Tensor] = []
    angles = torch.rand(5, 4)
    x, turns = torch.randn(5, 8), torch.stack([angles.cos(), angles.sin()], dim=-1)
    with Below():
        torch.zeros(1)
    assert backs[0].equal(unturn(x.clone(), turns))
