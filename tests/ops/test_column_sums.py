"""Column sums in tiles equal the dense n × n computation, in one piece and in chunks of queries."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from kvbench.ops.column_sums import TILE, add_tiled, column_sums
from kvbench.prefill import Needs, prefill
from tests.reference.dense_probabilities import dense_logits, dense_probabilities
from tests.support.tiny import LAYOUTS, prompt, tiny_model


def tiled(queries, keys, scaling, tile, start=0, first_causal=0, weights=None):
    sums = torch.zeros(queries.shape[0], keys.shape[1])
    return sums, add_tiled(queries, keys, scaling, start, first_causal, weights, sums, tile)


@given(
    n=st.integers(1, 40),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    tile=st.integers(1, 50),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_column_sums_and_lse_equal_the_dense_ones(n, kv_heads, group, tile, dtype):
    queries, keys = torch.randn(kv_heads * group, n, 8).to(dtype), torch.randn(kv_heads, n, 8).to(dtype)
    sums, lse = tiled(queries, keys, 0.35, tile)
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
    sums, lse = tiled(queries, keys, 0.35, tile, first_causal=n - w)
    logits = queries.double() @ keys.double().repeat_interleave(group, 0).mT * 0.35
    logits[:, n - w :, n - w :] += torch.full((w, w), float("-inf"), dtype=torch.float64).triu(1)
    assert_close(sums.double(), logits.softmax(-1).sum(1), atol=1e-5, rtol=1e-5)
    assert_close(lse.double(), logits.logsumexp(-1), atol=1e-5, rtol=1e-5)
    if w == n:
        assert torch.equal(sums, tiled(queries, keys, 0.35, tile)[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pass_observes_lookahead_sums_for_every_window_that_is_needed(layout):
    model, ids = tiny_model("llama", layout), prompt(50)
    both = prefill(model, ids, Needs(lookahead_sums=frozenset([8])) | Needs(lookahead_sums=frozenset([60])))
    causal = prefill(model, ids, Needs(column_sums=True))
    for layer, other in zip(both.layers, causal.layers, strict=True):
        assert layer.column_sums is None and set(layer.lookahead_sums) == {8, 60}
        assert_close(layer.lookahead_sums[60], other.column_sums, atol=1e-5, rtol=1e-5)  # all are within the window
        assert not torch.allclose(layer.lookahead_sums[8], other.column_sums, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("start", [0, 30])
def test_known_log_sums_give_the_sums_of_those_that_are_made(start, weighted, dtype, monkeypatch):
    """In tiles of queries and keys that do not divide the prompt."""
    monkeypatch.setattr("kvbench.ops.column_sums.TILE", 16)
    monkeypatch.setattr("kvbench.ops.column_sums.KEYS", 7)
    queries, keys = torch.randn(6, 50, 8).to(dtype), torch.randn(2, 50 + start, 8).to(dtype)
    weights = torch.rand(50) if weighted else None
    sums, lse = column_sums(queries, keys, 0.35, start, weights=weights)
    monkeypatch.setattr("kvbench.ops.column_sums.causal_probabilities", None)  # they are not made once more
    known, same = column_sums(queries, keys, 0.35, start, weights=weights, lse=lse)
    assert torch.equal(same, lse)
    assert_close(known, sums, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(column_sums(queries, keys, 0.35, start, weights=weights, lse=lse + 1)[0], sums)


@given(
    n=st.integers(1, 60),
    cuts=st.lists(st.integers(1, 59), max_size=4),
    first_causal=st.integers(0, 60),
    group=st.integers(1, 3),
)
def test_chunks_of_queries_add_up_to_the_whole(n, cuts, first_causal, group):
    """A chunk's keys end where it ends, unless some of its queries attend to all keys."""
    queries, keys = torch.randn(2 * group, n, 8), torch.randn(2, n, 8)
    first_causal = min(first_causal, n)
    edges = [0, *sorted({cut for cut in cuts if cut < n}), n]
    whole, lse = column_sums(queries, keys, 0.35, first_causal=first_causal)
    sums = torch.zeros(2 * group, n)
    parts = []
    for start, end in pairwise(edges):
        seen = n if start < first_causal else end
        part = queries[:, start:end], keys[:, :seen]
        parts.append(column_sums(*part, 0.35, start, first_causal, sums=sums)[1])
    assert_close(sums, whole, atol=1e-5, rtol=1e-5)
    assert_close(torch.cat(parts, dim=1), lse, atol=1e-5, rtol=1e-5)


def test_chunks_of_whole_tiles_give_the_bits_of_one_piece():
    n = 3 * TILE + 20
    queries, keys = torch.randn(4, n, 16), torch.randn(2, n, 16)
    whole, lse = column_sums(queries, keys, 0.25)
    sums = torch.zeros(4, n)
    first = column_sums(queries[:, : 2 * TILE], keys[:, : 2 * TILE], 0.25, sums=sums)[1]
    last = column_sums(queries[:, 2 * TILE :], keys, 0.25, 2 * TILE, sums=sums)[1]
    assert sums.equal(whole) and torch.cat([first, last], dim=1).equal(lse)


@pytest.mark.parametrize("tile", [1, 3, 16, 100])
def test_weights_multiply_what_each_query_gives(tile):
    queries, keys, weights = torch.randn(6, 16, 8), torch.randn(2, 40, 8), torch.rand(16)
    sums, _ = tiled(queries, keys, 0.3, tile, 24, weights=weights)
    hidden = torch.arange(40) > torch.arange(24, 40)[:, None]
    every = dense_logits(queries, keys, 0.3).masked_fill(hidden, float("-inf")).softmax(-1)
    assert_close(sums.double(), (every * weights[:, None]).sum(1), atol=1e-5, rtol=1e-5)


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
        tiled(queries, keys, 0.35, TILE)
        tiled(queries, keys, 0.35, TILE, first_causal=n - 8)
    assert largest <= group * TILE * n
