"""R-KV's score: by hand, against a plain computation, and its limits."""

import pytest
import torch
import torch.nn.functional as F

from kvbench.errors import UserError
from kvbench.methods import RKV, rkv
from kvbench.prefill import LayerState
from tests.support.tiny import random_layer


def test_of_three_equal_keys_the_oldest_is_the_most_redundant():
    keys = torch.tensor([[[3.0, 4.0]]]).repeat(1, 3, 1)
    redundancy = RKV().redundancy(keys)
    torch.testing.assert_close(redundancy, torch.tensor([[0.4484, 0.3213, 0.2302]]), atol=5e-5, rtol=0)


def plain_redundancy(keys, threshold=0.5):
    """Row by row as the paper's code reads."""
    heads, n, _ = keys.shape
    result = torch.empty(heads, n)
    for head in range(heads):
        rows = []
        for i in range(n):
            row = [float(F.cosine_similarity(keys[head, i], keys[head, j], dim=0)) for j in range(n)]
            row[i] = 0.0
            alike = [j for j in range(n) if row[j] > threshold]
            row[alike[-1] if alike else 0] = 0.0
            rows.append(row)
        result[head] = torch.tensor(rows).mean(dim=0).softmax(dim=0)
    return result


@pytest.mark.parametrize("tile", [4, 1024])
def test_redundancy_is_the_plain_one_in_tiles_of_any_size(tile, monkeypatch):
    monkeypatch.setattr(rkv, "TILE", tile)
    keys = random_layer(n=19, head_dim=3).keys
    torch.testing.assert_close(RKV().redundancy(keys), plain_redundancy(keys), atol=1e-6, rtol=1e-5)


def test_attention_takes_the_largest_logit_of_a_group_and_leaves_the_window_out():
    layer = random_layer(n=30, window=8)
    got = RKV(window=4, kernel=3).attention(layer)
    for head in range(2):
        queries, keys = layer.queries[3 * head : 3 * head + 3, -4:], layer.keys[head, :26]
        logits = torch.stack([query @ keys.T for query in queries]).max(dim=0).values * layer.scaling
        mean = logits.softmax(dim=-1).mean(dim=0)
        pooled = [max(mean[max(j - 1, 0) : j + 2]) for j in range(26)]
        torch.testing.assert_close(got[head, :26], torch.stack(pooled))
    assert not got[:, 26:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_importance_mixes_both_and_at_one_leaves_attention_alone(dtype):
    layer = random_layer(n=30, window=8)
    layer = LayerState(layer.keys.to(dtype), layer.values.to(dtype), layer.scaling, 6, queries=layer.queries.to(dtype))
    scoring = RKV(importance=0.3)
    expected = 0.3 * scoring.attention(layer)[:, :22] - 0.7 * scoring.redundancy(layer.keys)[:, :22]
    torch.testing.assert_close(scoring.votes(layer)[:, :22], expected)
    assert RKV(importance=1.0).votes(layer).equal(scoring.attention(layer))
    assert scoring.votes(layer).dtype == torch.float32


def test_an_even_kernel_is_refused():
    with pytest.raises(UserError, match="kernel=4 is even"):
        RKV(kernel=4)
