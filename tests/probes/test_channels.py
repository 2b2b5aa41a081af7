"""Spread and means of channels against vectors whose channels are known."""

import pytest
import torch
from torch.testing import assert_close

from kvbench import probes
from kvbench.prefill import LayerState
from tests.support.probes import CASES, N, same, seen
from tests.support.tiny import prompt, random_layer, tiny_model


def layer(scale: torch.Tensor, mean: torch.Tensor, dtype: torch.dtype) -> LayerState:
    """Keys and values of two heads, of which the second is the first times 3: scale, mean [head_dim]."""
    made = random_layer(n=4000, kv_heads=1, heads=2, head_dim=len(scale), observed=False)
    keys, values = (
        (vectors * scale + mean) * torch.tensor([1.0, 3.0])[:, None, None] for vectors in (made.keys, made.values)
    )
    return LayerState(keys.to(dtype), values.to(dtype), made.scaling, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of", ["keys", "values"])
def test_spread_is_the_largest_channels_size_over_the_medians(of, dtype):
    of_size = layer(torch.tensor([1.0, 2.0, 3.0, 4.0, 60.0]), torch.zeros(5), dtype)
    of_mean = layer(torch.ones(5), torch.tensor([0.0, 0.0, 0.0, 0.0, -50.0]), dtype)
    assert_close(probes.ChannelSpread(of).observe(of_size, 4000), torch.full((2,), 20.0), rtol=0.1, atol=0)
    assert_close(probes.ChannelSpread(of).observe(of_mean, 4000), torch.full((2,), 50.0), rtol=0.1, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of", ["keys", "values"])
def test_means_are_none_all_or_half_of_the_squares(of, dtype):
    ones = torch.ones(4)
    for mean, share in ((0.0, 0.0), (1.0, 0.5), (100.0, 1.0)):
        observed = probes.ChannelMeans(of).observe(layer(ones, mean * ones, dtype), 4000)
        assert_close(observed, torch.full((2,), share), rtol=0, atol=0.02)


@pytest.mark.parametrize("of", ["keys", "values"])
@pytest.mark.parametrize("family, layout", CASES)
def test_the_vectors_are_those_of_the_models_own_cache(family, layout, of):
    with torch.no_grad():
        cache = tiny_model(family, layout, implementation="eager")(prompt(N)[None], use_cache=True).past_key_values
    vectors = [getattr(layer, of)[0].double() for layer in cache.layers]
    squares = [each.square().mean(1) for each in vectors]
    spread = [(each.max(-1).values / each.median(-1).values).sqrt() for each in squares]
    means = [each.mean(1).square().sum(-1) / square.sum(-1) for each, square in zip(vectors, squares, strict=True)]
    same(seen(probes.ChannelSpread(of), family, layout), spread)
    same(seen(probes.ChannelMeans(of), family, layout), means)
