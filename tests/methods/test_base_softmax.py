"""Every cache that a method makes computes soft caps and attention sinks, whatever its storage."""

import copy

import pytest
import torch

from kvbench.ops.softmax import Softmax
from tests.support.every_method import HEAD_DIM, HEADS, LAYERS, PRUNED, N, setting, state
from tests.support.representatives import CACHES, every_third

SCALING = HEAD_DIM**-0.5
BY_QUERY = ("quest", "rocketkv", "omnikv")  # they choose what they read by the query itself


def answers(caches, scaling, query_scale: float = 1.0) -> list[torch.Tensor]:
    """What one token gets from each layer, [query heads, head_dim], from copies of the caches."""
    generator = torch.Generator().manual_seed(3)
    out = []
    for layer in copy.deepcopy(caches):
        query, key, value = (torch.randn(1, heads, 1, HEAD_DIM, generator=generator) for heads in (HEADS, 2, 2))
        layer.update(key, value)
        out.append(layer.attend(query_scale * query, scaling)[0, :, 0])
    return out


def close(found, expected, **tolerance) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, **{"rtol": 2e-3, "atol": 2e-4} | tolerance)


@pytest.mark.parametrize("name", every_third((name for name in CACHES if name not in PRUNED), "quest"))
def test_soft_caps_and_sinks_bend_the_attention_of_every_cache(name):
    one = setting(name, 0.4)
    caches = one.method.compress(state(N), one.budget_at(N, LAYERS))
    plain = answers(caches, SCALING)
    # a cap that bends nothing and sinks that take nothing
    close(answers(caches, Softmax(SCALING, 1e5, torch.full((HEADS,), -1e4))), plain)
    # a cap that makes all logits equal: as a query that looks nowhere
    if not name.startswith(BY_QUERY):
        close(answers(caches, Softmax(SCALING, 1e-6)), answers(caches, SCALING, 1e-9))
    # a sink s leaves the share e^lse / (e^lse + e^s) of an answer: the same lse for any s, and each head has its own
    sinks = torch.linspace(0.5, 3, HEADS)
    one, other = (answers(caches, Softmax(SCALING, None, s)) for s in (sinks, sinks.flip(0)))
    for whole, a, b in zip(plain, one, other, strict=True):
        first, second = ((whole * x).sum(dim=1) / (whole * whole).sum(dim=1) for x in (a, b))
        torch.testing.assert_close(a, whole * first[:, None], rtol=2e-3, atol=2e-4)
        lse = sinks - (1 / first - 1).log()
        torch.testing.assert_close(lse, sinks.flip(0) - (1 / second - 1).log(), rtol=1e-2, atol=1e-2)
