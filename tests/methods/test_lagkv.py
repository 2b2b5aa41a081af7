"""LagKV: quotas by partition, scores against the next one, and what stays whole."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.methods import LagKV
from kvbench.methods.lagkv import lag_score
from tests.support.tiny import random_layer


@pytest.mark.parametrize(("n", "lag", "kept"), [(8000, 128, 2144), (8000, 1024, 3392), (2063, 1024, 2063)])
def test_a_fixed_share_of_partitions_keeps_what_the_formula_says(n, lag, kept):
    method = LagKV(sinks=16, lag=lag, share=0.25)
    quotas = method.quotas(n, n)
    assert sum(quotas) + (method.floor(n, 1) if quotas else n) == kept
    assert not method.takes_budget


@given(n=st.integers(1, 400), lag=st.integers(1, 40), sinks=st.integers(0, 6), share=st.floats(0.01, 1.2))
def test_any_budget_is_met_or_raised_to_what_stays_whole(n, lag, sinks, share):
    method = LagKV(sinks=sinks, lag=lag)
    budget = max(int(share * n), method.floor(n, 1))
    quotas = method.quotas(n, budget)
    assert all(0 <= quota <= lag for quota in quotas) and quotas == sorted(quotas)
    if budget >= n or n < sinks + 2 * lag:
        assert not quotas
    else:
        assert sum(quotas) + method.floor(n, 1) == budget or budget == sinks + 1


def plain_scores(x, lag, sinks):
    """Partition by partition and token by token."""
    n = x.shape[1]
    parts = [x[:, s : s + lag].double() for s in range(sinks, n - lag + 1, lag)]
    rows = []
    for part, reference in pairwise(parts):
        low, high = reference.min(1).values[:, None], reference.max(1).values[:, None]
        spread = ((part - low) / (high - low)).std(-1)
        rows.append(spread.exp() / spread.exp().sum(-1, keepdim=True))
    return torch.stack(rows, 1)


@pytest.mark.parametrize("n", [48, 50, 63])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_selection_is_the_best_of_each_partition_and_the_ends(n, dtype):
    layer = random_layer(n=n, dtype=dtype)
    method, budget = LagKV(sinks=4, lag=10), 4 + 10 + (n - 4) % 10 + 9
    scores = plain_scores(layer.keys, 10, 4) + plain_scores(layer.values, 10, 4)
    chosen = method.select(layer, budget).indices
    count = scores.shape[1]
    quotas = method.quotas(n, budget)
    for head in range(2):
        expected = [0, 1, 2, 3, *range(4 + 10 * count, n)]
        for partition, quota in enumerate(quotas):
            best = scores[head, partition].argsort(descending=True)[:quota]
            expected += (4 + 10 * partition + best).tolist()
        assert chosen[head].tolist() == sorted(expected)
    assert chosen.shape[1] == budget


def test_a_channel_that_is_scaled_or_shifted_changes_nothing_and_a_flat_one_says_nothing():
    x = torch.randn(2, 4, 10, 8)
    scores = lag_score(x)
    torch.testing.assert_close(lag_score(x * (torch.rand(8) + 0.5) + torch.randn(8)), scores)
    flat = x.clone()
    flat[:, 1:, :, 3] = 2.5
    assert lag_score(flat).isfinite().all()


def test_values_can_be_left_out():
    layer = random_layer(n=64)
    other = random_layer(n=64)
    other.values = torch.randn_like(other.values)
    method = LagKV(sinks=4, lag=10, v_ratio=0.0)
    assert method.select(layer, 30).indices.equal(method.select(other, 30).indices)
    assert not LagKV(sinks=4, lag=10).select(layer, 30).indices.equal(LagKV(sinks=4, lag=10).select(other, 30).indices)


def test_a_layer_whose_budget_is_below_what_stays_whole_keeps_exactly_that():
    """Another method may share out the budget between layers: SqueezeAttention gives some layers little."""
    layer = random_layer(n=63)
    chosen = LagKV(sinks=4, lag=10).select(layer, 8).indices
    assert chosen[0].tolist() == [0, 1, 2, 3, *range(44, 63)]
