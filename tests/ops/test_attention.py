"""Attention numerics: observations in tiles equal the dense n × n computation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from kvbench.ops import attention
from kvbench.prefill import Needs, prefill
from tests.support.tiny import FAMILIES, LAYOUTS, prompt, tiny_model


def dense_probabilities(queries, keys, scaling):
    """Causal softmax over everything at once, float64 [heads, n, n]."""
    group = queries.shape[0] // keys.shape[0]
    logits = queries.double() @ keys.double().repeat_interleave(group, 0).mT * scaling
    n = keys.shape[1]
    return logits.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")).softmax(-1), logits


@given(
    n=st.integers(1, 40),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    tile=st.integers(1, 50),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_column_sums_and_lse_equal_the_dense_ones(n, kv_heads, group, tile, dtype):
    queries, keys = torch.randn(kv_heads * group, n, 8).to(dtype), torch.randn(kv_heads, n, 8).to(dtype)
    sums, lse = attention.column_sums(queries, keys, 0.35, tile)
    probabilities, logits = dense_probabilities(queries, keys, 0.35)
    assert_close(sums.double(), probabilities.sum(1), atol=1e-5, rtol=1e-5)
    causal = logits.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
    assert_close(lse.double(), causal.logsumexp(-1), atol=1e-5, rtol=1e-5)
    assert_close(sums.sum(-1), torch.full((kv_heads * group,), float(n)))  # every query hands out 1


@given(
    n=st.integers(1, 40),
    w=st.integers(1, 45),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    tile=st.integers(1, 50),
)
def test_column_sums_with_lookahead_mask_the_last_block_alone(n, w, kv_heads, group, tile):
    """KVCache-Factory's H2O to June 2026: the softmax of all n × n logits, of which the last w × w block is causal."""
    w = min(w, n)
    queries, keys = torch.randn(kv_heads * group, n, 8), torch.randn(kv_heads, n, 8)
    sums, lse = attention.column_sums(queries, keys, 0.35, tile, first_causal=n - w)
    logits = queries.double() @ keys.double().repeat_interleave(group, 0).mT * 0.35
    logits[:, n - w :, n - w :] += torch.full((w, w), float("-inf"), dtype=torch.float64).triu(1)
    assert_close(sums.double(), logits.softmax(-1).sum(1), atol=1e-5, rtol=1e-5)
    assert_close(lse.double(), logits.logsumexp(-1), atol=1e-5, rtol=1e-5)
    if w == n:
        assert torch.equal(sums, attention.column_sums(queries, keys, 0.35, tile)[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pass_observes_lookahead_sums_for_every_window_that_is_needed(layout):
    model, ids = tiny_model("llama", layout), prompt(50)
    both = prefill(model, ids, Needs(lookahead_sums=frozenset([8])) | Needs(lookahead_sums=frozenset([60])))
    causal = prefill(model, ids, Needs(column_sums=True))
    for layer, other in zip(both.layers, causal.layers, strict=True):
        assert layer.column_sums is None and set(layer.lookahead_sums) == {8, 60}
        assert torch.equal(layer.lookahead_sums[60], other.column_sums)  # all queries are within the window
        assert not torch.allclose(layer.lookahead_sums[8], other.column_sums, atol=1e-2)


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


def test_extra_memory_of_column_sums_does_not_grow_with_n_squared():
    """The largest tensor made for n tokens is one tile of one KV head, not n × n."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    n, group = 2000, 2
    queries, keys = torch.randn(4, n, 8), torch.randn(2, n, 8)
    with Watch():
        attention.column_sums(queries, keys, 0.35)
        attention.column_sums(queries, keys, 0.35, first_causal=n - 8)
    assert largest <= group * attention.TILE * n


def test_needs_add_up():
    assert Needs(8) | Needs(32, True) == Needs(32, True)
    assert Needs() | Needs() == Needs()
