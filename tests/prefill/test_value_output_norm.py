"""Norms of projected values: those of the model's own projection, in tiles of any size."""

import pytest
import torch
from torch import nn

from kvbench.errors import UserError
from kvbench.prefill import Needs, prefill, value_output_norm
from tests.support.hybrids import hybrid_model
from tests.support.tiny import LAYOUTS, prompt, tiny_model


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_prefill_observes_the_length_of_what_a_value_adds_to_the_output(layout, dtype):
    model = tiny_model(layout=layout).to(dtype)
    state = prefill(model, prompt(40), Needs(value_output_norm=True))
    heads, kv_heads = LAYOUTS[layout]
    for layer, block in zip(state.layers, model.model.layers, strict=True):
        assert layer.value_output_norm.dtype == torch.float32
        for head in range(heads):
            alone = torch.zeros(40, heads, 8, dtype=dtype)
            alone[:, head] = layer.values[head * kv_heads // heads]
            projected = block.self_attn.o_proj(alone.flatten(1)).float()
            tolerance = 1e-5 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(
                layer.value_output_norm[head], projected.abs().sum(1), rtol=tolerance, atol=tolerance
            )


@pytest.mark.parametrize("tile", [1, 7, 40, 10_000])
def test_tiles_of_any_size_give_the_same(tile, monkeypatch):
    values, weight = torch.randn(2, 30, 8), torch.randn(24, 6 * 8)
    whole = value_output_norm.value_output_norm(values, weight)
    monkeypatch.setattr(value_output_norm, "TILE", tile)
    torch.testing.assert_close(value_output_norm.value_output_norm(values, weight), whole)


def test_layers_below_a_head_of_their_own_have_projections_too():
    """Llama-4's text model has its head beside the layers."""
    model = hybrid_model("llama4_text")
    weights = value_output_norm.output_projections(model, [1, 3])
    assert [id(weight) for weight in weights] == [id(model.model.layers[at].self_attn.o_proj.weight) for at in (1, 3)]


class Adapted(nn.Module):
    """A linear module with an adapter beside it, as peft's before merging, whose `weight` is the linear module's."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base_layer = base
        self.down, self.up = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)

    @property
    def weight(self) -> torch.Tensor:
        return self.base_layer.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + 3 * self.up(self.down(x))


@pytest.mark.parametrize("bias", [False, True])
def test_an_adapter_that_is_not_merged_counts_as_if_it_were(bias):
    """The weight alone was read, so that the methods kept other tokens than after merging."""
    model, ids = tiny_model(), prompt(40)
    base = model.model.layers[0].self_attn.o_proj
    base.bias = nn.Parameter(torch.ones(base.out_features)) if bias else None
    adapted = model.model.layers[0].self_attn.o_proj = Adapted(base)
    beside = prefill(model, ids, Needs(value_output_norm=True)).layers[0].value_output_norm
    merged = model.model.layers[0].self_attn.o_proj = nn.Linear(base.in_features, base.out_features, bias=bias)
    with torch.no_grad():
        merged.weight.copy_(base.weight + 3 * adapted.up.weight @ adapted.down.weight)
        if bias:
            merged.bias.copy_(base.bias)
    expected = prefill(model, ids, Needs(value_output_norm=True)).layers[0].value_output_norm
    torch.testing.assert_close(beside, expected, rtol=1e-4, atol=1e-4)


def test_an_adapter_for_each_sequence_is_read_with_one():
    """peft's adapter_names refused the 32 rows of a unit matrix, where one adapter was named."""

    class OneSequence(Adapted):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert len(x) == 1
            return super().forward(x)

    adapted = OneSequence(nn.Linear(32, 24))
    expected = adapted.weight + 3 * adapted.up.weight @ adapted.down.weight
    torch.testing.assert_close(value_output_norm.effective_weight(adapted), expected)


def test_nobody_else_pays_for_it():
    assert prefill(tiny_model(), prompt(20), Needs(window=8)).layers[0].value_output_norm is None
    assert (Needs(8) | Needs(value_output_norm=True)) == Needs(8, value_output_norm=True)


def test_a_model_without_such_a_projection_is_one_line():
    model = tiny_model()
    model.model.layers[1].self_attn.o_proj = nn.Identity()
    with pytest.raises(UserError, match="LlamaForCausalLM has no layers with the weight of an output projection"):
        prefill(model, prompt(20), Needs(value_output_norm=True))
