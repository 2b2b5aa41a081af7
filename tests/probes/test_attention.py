"""Sparsity and entropy of attention against a plain dense computation."""

import pytest
import torch

from kvbench import probes
from tests.support.probes import CASES, N, attentions, same, seen
from tests.support.tiny import random_layer


@pytest.mark.parametrize("family, layout", CASES)
def test_sparsity_is_the_fewest_tokens_that_hold_the_attention(family, layout):
    plain = []
    for attention in attentions(family, layout):
        votes = attention[:, -8:, :-8].sum(dim=1)  # [heads, N - 8]
        counts = [next(k for k in range(1, N) if sum(sorted(head.tolist())[-k:]) >= 0.9 * head.sum()) for head in votes]
        plain.append(torch.tensor(counts, dtype=torch.float64) / (N - 8))
    same(seen(probes.AttentionSparsity(0.9, window=8), family, layout), plain)


def test_even_attention_is_not_sparse_and_one_token_is_as_sparse_as_can_be():
    layer = random_layer(n=108, window=8)
    layer.queries = torch.zeros_like(layer.queries)
    even = probes.AttentionSparsity(0.9, window=8).observe(layer, 108)
    assert (even == 0.9).all()
    layer = random_layer(n=108, window=8)
    layer.queries = 1e3 * layer.keys[:, 5:6].repeat_interleave(3, dim=0).expand(-1, 8, -1)
    layer.keys[:, :5] = layer.keys[:, 6:] = 0
    assert (probes.AttentionSparsity(0.9, window=8).observe(layer, 108) == 0.01).all()
    assert (probes.AttentionEntropy(window=8).observe(layer, 108) < 1e-3).all()


@pytest.mark.parametrize("family, layout", CASES)
@pytest.mark.parametrize("window", [8, 999])
def test_entropy_is_over_what_a_query_sees(family, layout, window):
    plain = []
    for attention in attentions(family, layout):
        rows = range(max(1, N - window), N)
        entropy = [-(a := attention[:, i, : i + 1].clamp_min(1e-300)).mul(a.log()).sum(dim=-1) for i in rows]
        plain.append(
            torch.stack([h / torch.tensor(i + 1.0).log() for h, i in zip(entropy, rows, strict=True)]).mean(dim=0)
        )
    same(seen(probes.AttentionEntropy(window), family, layout), plain)
