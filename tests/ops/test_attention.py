"""Attention numerics: observations equal the dense n × n computation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from kvbench.ops import attention
from kvbench.prefill import Needs, prefill
from tests.reference.dense_probabilities import dense_probabilities
from tests.support.tiny import FAMILIES, LAYOUTS, prompt, tiny_model


@given(n=st.integers(1, 40), w=st.integers(1, 40), kv_heads=st.integers(1, 3), group=st.integers(1, 3))
def test_window_attention_is_the_last_rows_of_the_dense_one(n, w, kv_heads, group):
    queries, keys = torch.randn(kv_heads * group, n, 8), torch.randn(kv_heads, n, 8)
    w = min(w, n)
    rows = attention.window_attention(queries[:, -w:], keys, 0.35)
    assert_close(rows.double(), dense_probabilities(queries, keys, 0.35)[0][:, -w:], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_observations_of_a_model_equal_its_eager_attention(family, layout):
    n, w = 50, 7
    state = prefill(tiny_model(family, layout), prompt(n), Needs(window=w, column_sums=True))
    eager = tiny_model(family, layout, implementation="eager")
    attentions = eager(prompt(n)[None], output_attentions=True).attentions
    for layer, probabilities in zip(state.layers, attentions, strict=True):
        assert_close(layer.column_sums, probabilities[0].sum(1), atol=1e-4, rtol=1e-4)
        assert_close(layer.window_votes(w), probabilities[0, :, -w:].sum(1), atol=1e-4, rtol=1e-4)


def test_needs_add_up():
    assert Needs(8) | Needs(32, True) == Needs(32, True)
    assert Needs() | Needs() == Needs()
