"""Mean, variance and entropy of the last queries' attention equal the dense computation."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops.window_moments import window_moments
from kvbench.prefill import state
from tests.reference.dense_probabilities import dense_probabilities
from tests.support.tiny import random_layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("w", [1, 2, 8, 20])
def test_the_moments_are_those_of_the_dense_weights(dtype, w):
    queries, keys = torch.randn(6, 20, 8).to(dtype), torch.randn(2, 20, 8).to(dtype)
    weights = dense_probabilities(queries, keys, 0.35)[0][:, -w:]
    moments = window_moments(queries[:, -w:], keys, 0.35)
    assert_close(moments.mean.double(), weights.mean(1), atol=1e-6, rtol=1e-5)
    expected = weights.var(1) if w > 1 else torch.zeros_like(weights[:, 0])
    assert_close(moments.variance.double(), expected, atol=1e-6, rtol=1e-4)
    earlier = weights[..., : 20 - w]
    assert_close(moments.entropy.double(), -(earlier * (earlier + 1e-300).log()).sum((1, 2)), atol=1e-5, rtol=1e-5)


def test_a_layer_computes_them_from_exactly_the_last_queries_and_once(monkeypatch):
    layer, computed = random_layer(n=40, window=16), []
    monkeypatch.setattr(state, "window_moments", lambda *given: computed.append(given) or window_moments(*given))
    moments = layer.window_moments(8)
    expected = window_moments(layer.queries[:, -8:], layer.keys, layer.scaling)
    assert all(torch.equal(a, b) for a, b in zip(moments, expected, strict=True))
    assert_close(moments.mean * 8, layer.window_votes(8), atol=1e-6, rtol=1e-5)
    moments.mean.zero_()  # a copy
    assert torch.equal(layer.window_moments(8).mean, expected.mean) and len(computed) == 1
    assert not torch.equal(layer.window_moments(4).mean, expected.mean) and len(computed) == 2
