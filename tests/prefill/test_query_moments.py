"""Moments of the queries before RoPE: those of a plain computation, in tiles of any size."""

import pytest
import torch

from kvbench.models.attention_interface import ATTENTION
from kvbench.models.probe import ropes_of
from kvbench.ops.rope import Rope
from kvbench.prefill import Needs, prefill
from kvbench.prefill.query_moments import QueryMoments, query_moments
from tests.support.tiny import prompt, tiny_model


@pytest.mark.parametrize("sizes", [[50], [1, 49], [17, 3, 30]], ids=str)
def test_tiles_of_any_size_give_the_mean_and_the_covariance_of_all(sizes):
    queries = torch.randn(3, 50, 8) + 30  # a mean far from zero loses no digits
    moments = QueryMoments.none(queries)
    for tile in queries.split(sizes, dim=1):
        moments.add(tile)
    centred = queries.double() - queries.double().mean(1, keepdim=True)
    torch.testing.assert_close(moments.mean, queries.mean(1))
    torch.testing.assert_close(moments.covariance, (centred.mT @ centred / 50).float(), rtol=1e-4, atol=1e-4)
    assert moments.count == 50


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_prefill_observes_the_projected_queries_without_the_first_ones(family, dtype):
    model = tiny_model(family).to(dtype)
    projected = []
    names = ("q_norm", "q_proj") if family == "qwen3" else ("q_proj",)

    def note(module, args, output):
        projected.append(output.detach())

    ropes_of(model)  # reads tokens of its own
    for layer in model.model.layers:
        getattr(layer.self_attn, names[0]).register_forward_hook(note)
    state = prefill(model, prompt(40), Needs(query_moments=frozenset([0, 4])))
    for layer, rows in zip(state.layers, projected, strict=True):
        rows = rows.float().reshape(40, layer.num_attention_heads, -1).transpose(0, 1)  # [heads, n, head_dim]
        for skip in (0, 4):
            expected = rows[:, skip:]
            tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 5e-2}
            torch.testing.assert_close(layer.query_moments[skip].mean, expected.mean(1), **tolerance)
            centred = expected - expected.mean(1, keepdim=True)
            covariance = centred.mT @ centred / expected.shape[1]
            torch.testing.assert_close(layer.query_moments[skip].covariance, covariance, **tolerance)


def test_parts_of_a_prompt_know_their_positions():
    rope, queries = Rope.from_model(tiny_model(implementation=ATTENTION)), torch.randn(2, 30, 8)
    whole = query_moments(queries, rope, skip=4)
    part = query_moments(queries[:, 10:], rope, skip=4, start=10)
    rest = query_moments(queries[:, :10], rope, skip=4)
    assert (whole.count, part.count, rest.count) == (26, 20, 6)
    torch.testing.assert_close(whole.mean, (part.mean * 20 + rest.mean * 6) / 26)
