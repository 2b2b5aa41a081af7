"""Attention maps against a plain dense computation."""

import pytest
import torch

from kvbench import probes
from tests.support.probes import CASES, N, attentions, same, seen


@pytest.mark.parametrize("family, layout", CASES)
@pytest.mark.parametrize("bins", [6, 64])
def test_a_map_is_the_mean_attention_of_stretches(family, layout, bins):
    plain = []
    for attention in attentions(family, layout):
        parts = list(torch.arange(N).tensor_split(min(bins, N)))
        mean = attention.mean(dim=0)
        plain.append(
            torch.stack([torch.stack([mean[rows][:, keys].sum() / len(rows) for keys in parts]) for rows in parts])
        )
    ours = seen(probes.AttentionMap(bins=bins), family, layout)
    same(ours, plain)
    assert all((a.sum(dim=-1) - 1).abs().max() < 1e-3 for a in ours)
