"""The codebook cache while decoding: new tokens are matched or become entries, and attention follows."""

import math

import pytest
import torch

from kvbench.methods import Codebook
from kvbench.methods.selection import Selection
from kvbench.methods.storage.codebook_layer import Book, Coded
from tests.support.codebook_layers import ROPE, attention_over, decoded, mixed_selection, similar_layer
from tests.support.tiny import random_layer


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_decoded_tokens_match_an_entry_or_become_one(scope):
    layer = similar_layer()
    storage = Codebook(0.98, 0.95, scope, window=0)
    cache = storage.store(layer, Selection.everything(layer))
    sizes = [len(s.keys.book) for s in cache.streams]
    for plain, value, _ in decoded(cache, layer, 6):
        assert plain.shape == value.shape
    grown = [len(s.keys.book) for s in cache.streams]
    each = 3 if scope != "layer" else 6  # a shared book takes the fresh keys of both KV heads
    assert [g - s for g, s in zip(grown, sizes, strict=True)] == [each] * len(sizes)
    assert all(s.keys.references.length == s.values.references.length == 66 for s in cache.streams)
    assert cache.get_seq_length() == 66


@pytest.mark.parametrize("reconstruct", [True, False])
def test_decoded_vectors_are_read_within_the_bound_at_their_own_positions(reconstruct):
    layer = similar_layer()
    cache = Codebook(0.98, 0.95, reconstruct=reconstruct, window=8).store(layer, mixed_selection(layer, 30))
    fed = decoded(cache, layer, 9)
    for head in range(2):
        read = cache.read_keys()[head][-8 - 9 : -8]  # the raw window comes last
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
    entries = [len(s.keys.book) for s in cache.streams]
    decoded(cache, layer, 1)  # near a prompt token: no new entry
    assert [len(s.keys.book) for s in cache.streams] == entries
    before = cache.nbytes
    decoded(cache, layer, 40)
    assert [len(s.keys.book) for s in cache.streams] == [e + 20 for e in entries]
    # entries grow by blocks of 64: the first fresh one makes room, the rest find it
    room = 2 * 2 * 64 * 8 * 4
    assert cache.nbytes - before == room


def test_references_widen_when_the_book_outgrows_them():
    book = Book(torch.eye(2), 0.98)
    coded = Coded(book, torch.zeros(3, dtype=torch.long), torch.ones(3))
    angles = torch.linspace(0.02, 3.1, 300)[:, None] * 2
    vectors = torch.cat([angles.cos(), angles.sin()], dim=1) * 5
    coded.book.theta = 0.99999
    coded.append(vectors)
    assert len(book) > 256 and coded.references.buffer.dtype == torch.uint16
    assert coded.references.view[:3, 0].tolist() == [0, 0, 0]
    assert coded.read()[3:].allclose(vectors, atol=5 * math.sqrt(2 * 1.1e-5))
    assert coded.read()[:3].equal(torch.tensor([[1.0, 0.0]] * 3))


def test_the_most_similar_entry_is_taken_while_decoding_and_the_threshold_is_strict():
    book = Book(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), 0.7)
    assert book.find(torch.tensor([0.9, 0.4])) == 1
    assert book.find(torch.tensor([3.0, 0.1])) == 0
    assert book.find(torch.tensor([0.0, -2.0])) is None
    assert Book(torch.tensor([[1.0, 0.0]]), 1.0).find(torch.tensor([1.0, 0.0])) is None
    assert Book(torch.empty(0, 2), 0.1).find(torch.ones(2)) is None


def test_decoding_starts_from_an_empty_book():
    layer = random_layer(n=5, window=4, rope=ROPE)
    cache = Codebook(window=32).store(layer, Selection.everything(layer))
    assert all(len(s.keys.book) == 0 for s in cache.streams)
    assert cache.nbytes == layer.nbytes  # all raw
    query = torch.randn(1, 6, 1, 8)
    expected = attention_over(cache, query, 0.3)
    assert cache.attend(query, 0.3).allclose(expected, atol=1e-6)
    cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
    assert cache.attend(query, 0.3).allclose(attention_over(cache, query, 0.3), atol=1e-6)
    assert [len(s.keys.book) for s in cache.streams] == [1, 1]
