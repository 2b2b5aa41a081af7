"""The codebook cache while decoding: new tokens are matched or become entries, and attention follows."""

import pytest
import torch

from kvbench.methods import Codebook
from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.ops.codebook_append import nearest
from kvbench.ops.directions import bound
from tests.support.codebook_layers import (
    ROPE,
    attention_over,
    book_sizes,
    decoded,
    mixed_selection,
    read_keys,
    read_values,
    references,
    similar_layer,
    stream_sizes,
)
from tests.support.tiny import random_layer


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_decoded_tokens_match_an_entry_or_become_one(scope):
    layer = similar_layer()
    storage = Codebook(0.98, 0.95, scope, window=0)
    cache = storage.store(layer, Selection.everything(layer))
    sizes = stream_sizes(cache, cache.k)
    for plain, value, _ in decoded(cache, layer, 6):
        assert plain.shape == value.shape
    grown = stream_sizes(cache, cache.k)
    each = 3 if scope != "layer" else 6  # a shared book takes the fresh keys of both KV heads
    assert [g - s for g, s in zip(grown, sizes, strict=True)] == [each] * len(sizes)
    streams, sides = range(len(cache.places)), (cache.k, cache.v)
    assert all(len(references(cache, side, stream)) == 66 for side in sides for stream in streams)
    assert cache.get_seq_length() == 66


@pytest.mark.parametrize("reconstruct", [True, False])
def test_decoded_vectors_are_read_within_the_bound_at_their_own_positions(reconstruct):
    layer = similar_layer()
    cache = Codebook(0.98, 0.95, reconstruct=reconstruct, window=8).store(layer, mixed_selection(layer, 30))
    fed = decoded(cache, layer, 9)
    for head in range(2):
        read = read_keys(cache)[head][-8 - 9 : -8]  # the raw window comes last
        true = torch.stack([key[head, 0] for _, _, key in fed])
        cosine = torch.nn.functional.cosine_similarity(read, true, dim=-1)
        assert (cosine > 0.98 - 1e-5).all()
        assert cosine[1::2].allclose(torch.ones(4), atol=1e-5)  # fresh ones are entries themselves
        if reconstruct:
            assert read.norm(dim=-1).allclose(true.norm(dim=-1), rtol=1e-5)


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_attention_while_decoding_is_that_over_the_reconstructed_keys_and_values(scope):
    layer = similar_layer()
    cache = Codebook(0.9, 0.8, scope, window=8).store(layer, mixed_selection(layer, 30))
    for _ in range(3):
        decoded(cache, layer, 3)
        query = torch.randn(1, 6, 1, 8)
        expected = attention_over(cache, query, layer.scaling, tokens=30 + cache.seen - 60)
        assert cache.attend(query, layer.scaling).allclose(expected, atol=1e-5)


def test_a_decoded_token_costs_references_and_magnitudes_and_at_most_two_entries():
    layer = similar_layer()
    cache = Codebook(0.98, 0.95, window=8).store(layer, Selection.everything(layer))
    entries, before = stream_sizes(cache, cache.k), cache.nbytes
    decoded(cache, layer, 1)  # near a prompt token: no new entry
    assert stream_sizes(cache, cache.k) == entries
    decoded(cache, layer, 40)
    assert stream_sizes(cache, cache.k) == [e + 20 for e in entries]
    # room for 64 tokens is made at once, in which each may become an entry: of keys and of values, in both streams
    per_token = 8 * 4 + 4 + 1
    assert cache.nbytes - before == 2 * 2 * 64 * per_token
    decoded(cache, layer, 22)
    assert cache.nbytes - before == 2 * 2 * 64 * per_token
    decoded(cache, layer, 2)
    assert cache.nbytes - before == 2 * 2 * 128 * per_token


def test_references_widen_when_the_book_may_outgrow_them():
    layer = similar_layer(n=90, kv_heads=2)
    cache = Codebook(0.999999, 0.999999, window=0).store(layer, Selection.everything(layer))
    first = [references(cache, cache.k, stream).long() for stream in (0, 1)]
    assert references(cache, cache.k, 0).dtype == torch.uint8
    fed = [decoded(cache, layer, 30, seed) for seed in range(7)]
    assert min(stream_sizes(cache, cache.k)) > 90 + 7 * 15 - 1
    for stream in (0, 1):
        found = references(cache, cache.k, stream)
        assert found.dtype == torch.uint16 and found[:90].long().equal(first[stream])
        true = torch.stack([key[stream, 0] for block in fed for _, _, key in block])
        assert read_keys(cache)[stream][90:].allclose(true, atol=0.02)
        true = torch.stack([value[stream, 0] for block in fed for _, value, _ in block])
        assert read_values(cache)[stream][90:].allclose(true, atol=0.02)


def test_the_most_similar_entry_is_taken_while_decoding_and_the_threshold_is_strict():
    def find(rows, vector, theta):
        rows = torch.tensor(rows).view(-1, 2)
        return nearest(rows, torch.nn.functional.normalize(torch.tensor(vector), dim=0), False, bound(theta))

    assert find([[1.0, 0.0], [0.8, 0.6]], [0.9, 0.4], 0.7) == 1
    assert find([[1.0, 0.0], [0.8, 0.6]], [3.0, 0.1], 0.7) == 0
    assert find([[1.0, 0.0], [0.8, 0.6]], [0.0, -2.0], 0.7) is None
    assert find([[5.0, 0.0], [5.0, 0.0]], [1.0, 0.0], 0.7) == 0  # the lowest of equal ones
    assert find([[1.0, 0.0]], [1.0, 0.0], 1.0) is None
    assert find([], [1.0, 1.0], 0.1) is None


def test_decoding_starts_from_an_empty_book():
    layer = random_layer(n=5, window=4, rope=ROPE)
    cache = Codebook(window=32).store(layer, Selection.everything(layer))
    assert book_sizes(cache) == ([0, 0], [0, 0])
    assert cache.nbytes == layer.nbytes  # all raw
    query = torch.randn(1, 6, 1, 8)
    expected = attention_over(cache, query, 0.3)
    assert cache.attend(query, 0.3).allclose(expected, atol=1e-6)
    cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
    assert cache.attend(query, 0.3).allclose(attention_over(cache, query, 0.3), atol=1e-6)
    assert stream_sizes(cache, cache.k) == [1, 1]
