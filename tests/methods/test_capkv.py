"""CapKV's scores: weighted leverage of the values, by a plain inverse, by hand and under other methods' rules."""

import pytest
import torch

from kvbench.methods import Eviction
from kvbench.methods.capkv import CapKV, leverage
from kvbench.ops.rope import Rope
from tests.support.tiny import random_layer, tiny_model

SINKS = 4
ROPE = Rope.from_model(tiny_model())


def layer_of(n: int = 40, **options):
    return random_layer(n=n, rope=ROPE, **options)


def turned(query: torch.Tensor, start: int, future: int) -> torch.Tensor:
    """A query [head_dim] before RoPE at each of the next positions, averaged."""
    rows = query.expand(1, future, -1)
    return ROPE.rotate(rows, torch.arange(start, start + future))[0].mean(dim=0)


def by_loops(layer, tau: float, future: int) -> torch.Tensor:
    """Scores [num_key_value_heads, n - SINKS] in float64, one query head after the other."""
    scores = []
    for head, mean in enumerate(layer.query_moments[SINKS].mean):
        keys, values = (x[head // 3, SINKS:].double() for x in (layer.keys, layer.values))
        anchor = turned(mean, layer.n, future).double()
        cosines = torch.stack([anchor @ key / (anchor.norm() * key.norm()) for key in keys])
        weights = torch.exp(tau * (cosines - cosines.max()))
        capacity = torch.eye(8).double() + sum(
            w * torch.outer(v, v) for w, v in zip(weights + 1e-6, values, strict=True)
        )
        scores.append(torch.stack([w * v @ capacity.inverse() @ v for w, v in zip(weights, values, strict=True)]))
    return torch.stack(scores).unflatten(0, (2, 3)).mean(dim=1)


@pytest.mark.parametrize(("tau", "future"), [(5.0, 512), (0.5, 3)])
def test_scores_are_the_weighted_leverage_of_the_values(tau, future):
    layer = layer_of()
    votes = CapKV(tau=tau, future=future).votes(layer)
    assert votes[:, :SINKS].isposinf().all()
    torch.testing.assert_close(votes[:, SINKS:].double(), by_loops(layer, tau, future), rtol=1e-4, atol=1e-7)


def test_leverage_of_one_value_and_of_copies_of_it():
    """vᵀ(I + k·w·vvᵀ)⁻¹v = |v|² / (1 + k·w·|v|²)."""
    value = torch.tensor([3.0, 4.0]).double()
    for copies, weight in ((1, 1.0), (3, 0.5)):
        scores = leverage(value.expand(1, copies, 2), torch.full((1, copies), weight).double())
        assert scores.tolist() == [pytest.approx([25 / (1 + copies * weight * 25)] * copies)]


def test_of_tokens_that_queries_see_alike_the_one_whose_value_nothing_else_has_stays():
    layer = layer_of()
    layer.keys[:, SINKS:] = layer.keys[:, SINKS : SINKS + 1]
    layer.values[:, SINKS:] = torch.eye(8)[0]
    layer.values[:, 17] = torch.eye(8)[1]
    assert Eviction(scoring=CapKV()).select(layer, 0, 1, SINKS + 1).indices.tolist() == [[0, 1, 2, 3, 17]] * 2


@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_prompt_of_little_more_than_the_sinks_has_finite_scores_behind_them(n):
    votes = CapKV().votes(layer_of(n=n))
    assert votes.shape == (2, n) and votes[:, SINKS:].isfinite().all()
