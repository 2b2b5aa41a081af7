"""TriAttention's score against its trigonometric series, written with complex numbers."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import DecodeCompression, Eviction, TriAttention
from kvbench.ops.rope import Rope
from kvbench.prefill import LayerState
from tests.support.tiny import random_layer, tiny_model

N, WINDOW = 60, 8


def series(layer, farthest: int) -> torch.Tensor:
    """The sum over frequencies, term by term, float64 [num_attention_heads, n]."""
    half = layer.keys.shape[2] // 2
    frequencies = layer.rope.embedding.inv_freq.double()

    def before(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        as_complex = torch.complex(x[..., :half].double(), x[..., half:].double())
        return as_complex * torch.polar(torch.ones(len(places), half).double(), -places[:, None] * frequencies)

    keys = before(layer.keys, torch.arange(N)).repeat_interleave(len(layer.queries) // len(layer.keys), 0)
    queries = before(layer.queries[:, -WINDOW:], torch.arange(N - WINDOW, N))
    centre, size = queries.mean(1, keepdim=True), queries.abs().mean(1, keepdim=True)
    phase = (centre * keys.conj()).angle()
    norms, total, offset = ((size - centre.abs()) * keys.abs()).sum(-1), 0, 1
    offsets = []
    while offset <= farthest:
        offsets.append(offset)
        offset *= 2
    for later in offsets:
        distance = (N + later - torch.arange(N))[:, None]
        total = total + (centre.abs() * keys.abs() * (frequencies * distance + phase).cos()).sum(-1) / len(offsets)
    return total + norms


@pytest.mark.parametrize("farthest", [1, 7, 1000])
def test_scores_are_the_trigonometric_series_and_the_norms(farthest):
    layer = random_layer(n=N, rope=Rope.from_model(tiny_model()))
    scoring = TriAttention(observed=WINDOW, farthest=farthest)
    expected = series(layer, farthest)
    torch.testing.assert_close(scoring.raw(layer).double(), expected, rtol=1e-3, atol=1e-3)
    standard = (expected - expected.mean(1, keepdim=True)) / expected.std(1, keepdim=True, correction=0)
    torch.testing.assert_close(scoring.votes(layer).double(), standard, rtol=1e-3, atol=1e-3)


def test_a_kv_head_keeps_the_best_of_its_query_heads():
    layer = random_layer(n=N, rope=Rope.from_model(tiny_model()))
    method = Eviction(scoring=TriAttention(observed=WINDOW), group_reduce="max")
    best = method.scoring.votes(layer).unflatten(0, (2, 3)).amax(dim=1)
    expected = best.argsort(dim=1, descending=True, stable=True)[:, :20].sort(dim=1).values
    assert torch.equal(method.select(layer, 0, 2, 20).indices, expected)


def test_while_decoding_it_scores_stored_keys_from_true_positions():
    layer, budget = random_layer(n=N, rope=Rope.from_model(tiny_model())), 20
    method = Eviction(scoring=TriAttention(observed=WINDOW), decode_compression=DecodeCompression(every=1))
    cache = method.compress_layer(layer, 0, 2, budget)
    stored, key, query = cache.k.view[0].clone(), torch.randn(1, 2, 1, 8), torch.randn(1, 6, 1, 8)
    cache.update(key, key)
    cache.attend(query, layer.scaling)
    queries = torch.cat([layer.queries, query[0]], dim=1)[:, -WINDOW:]
    keys = torch.cat([stored, key[0]], dim=1)
    state = LayerState(keys, keys, layer.scaling, 6, layer.rope, queries, prompt=N + 1)
    votes = TriAttention(observed=WINDOW).votes(state).unflatten(0, (2, 3)).mean(dim=1)
    kept = votes.argsort(dim=1, descending=True, stable=True)[:, :budget].sort(dim=1).values
    assert torch.equal(cache.k.view[0], keys.gather(1, kept[..., None].expand(-1, -1, 8)))


def test_a_model_without_rotary_embeddings_is_refused():
    with pytest.raises(UserError, match="TriAttention needs a model with rotary position embeddings"):
        TriAttention(observed=WINDOW).votes(random_layer(n=N))
