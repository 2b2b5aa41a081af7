"""Codebook caches of a batch move into one, in which each has the bits and counts the bytes of a cache alone."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.base import BLOCK, held_bytes, storage_bytes
from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.spindlekv.codebook.layer_cache import CodebookLayer
from kvbench.ops.softmax import Softmax
from tests.support.batch_layers import batch_layer
from tests.support.codebook_caches import random_cache

HEADS, GROUP, DIM = 2, 3, 8
# coded tokens of each stream, entries of each book: references get wider while decoding, streams may be empty
ROWS = [([30, 12], [9, 4]), ([5, 30], [250, 7]), ([30, 0], [40, 0])]


def rows(dtype=torch.float32, **more):
    """Rows of one prompt; some of their streams have bits or no positions."""
    return [
        random_cache(*sizes, [3, 4], GROUP, DIM, dtype, bits=[seed % 2], runs=[1] if seed else [], seed=seed, **more)
        for seed, sizes in enumerate(ROWS)
    ]


def shared_books(scope: str):
    """layer: a book for the streams of both heads; head: each query head has its own."""
    tokens, books, group = {"layer": ([30, 12], [], GROUP), "head": ([30, 12, 7, 9], [4, 5, 6], 1)}[scope]
    return [random_cache(tokens, [size, *books], [3, 4], group, DIM, seed=size) for size in (9, 70)]


def new_tokens(count: int, step: int, dtype=torch.float32, heads: int = HEADS * GROUP):
    """A query of `heads` heads, keys and values."""
    generator = torch.Generator().manual_seed(step % 7)  # some directions come again
    return (torch.randn(count, each, 1, DIM, generator=generator).to(dtype) for each in (heads, HEADS, HEADS))


def steps_agree(batch, alone, steps: range, dtype=torch.float32, heads: int = HEADS * GROUP, scaling=0.4):
    """Outputs, bytes counted and bytes held of each row after each step."""
    for step in steps:
        query, keys, values = new_tokens(len(alone), step, dtype, heads)
        batch.update(keys, values)
        together = batch.attend(query, scaling)
        for row, one in enumerate(alone):
            own = slice(row, row + 1)
            one.update(keys[own], values[own])
            expected = one.attend(query[own], scaling)
            assert_close(together[own].float(), expected.float(), atol=1e-6, rtol=1e-6)
            assert batch.rows[row].filled_bytes == one.filled_bytes and batch.rows[row].nbytes == one.nbytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reconstruct", [True, False])
def test_rows_of_a_batch_code_and_attend_as_each_does_alone_also_after_some_have_left(dtype, reconstruct):
    batch, alone = batch_layer(rows(dtype, reconstruct=reconstruct)), rows(dtype, reconstruct=reconstruct)
    steps_agree(batch, alone, range(3), dtype)
    assert [type(part.cache) for part in batch.parts] == [CodebookLayer]
    assert storage_bytes(batch.tensors()) == held_bytes(batch.rows), "nothing is held twice"
    for stay, steps in (([0, 2], range(3, BLOCK + 2)), ([1], range(BLOCK + 2, 2 * BLOCK + 3))):
        batch.keep(stay)
        alone = [alone[row] for row in stay]
        steps_agree(batch, alone, steps, dtype)


@pytest.mark.parametrize("scope, heads", [("layer", HEADS * GROUP), ("head", 4)])
def test_books_of_several_streams_and_of_query_heads_are_joined(scope, heads):
    batch, alone = batch_layer(shared_books(scope)), shared_books(scope)
    steps_agree(batch, alone, range(4), heads=heads)
    batch.keep([1])
    steps_agree(batch, alone[1:], range(4, 8), heads=heads)


def test_each_row_has_the_sinks_of_its_heads():
    scaling = Softmax(0.4, 5.0, torch.linspace(-1, 2, HEADS * GROUP))
    steps_agree(batch_layer(rows()), rows(), range(2), scaling=scaling)


def test_only_caches_of_one_kind_are_joined_and_those_that_have_decoded_stay_alone():
    keys, values = torch.randn(2, HEADS, 10, DIM)
    prompt = rows()[0].seen
    dense = DenseLayer(keys, values, prompt, Kept.tokens(10, 10, prompt, HEADS))
    decoded = rows()[0]
    decoded.update(*(x for x in list(new_tokens(1, 0))[1:]))
    others = [*rows(), *rows(reconstruct=False)[:2], *rows(bound=0.5)[:1], dense]
    batch = batch_layer(others)
    query, new_keys, new_values = new_tokens(len(others), 0)
    batch.update(new_keys, new_values)
    assert [part.rows for part in batch.parts] == [[0, 1, 2], [3, 4], [5], [6]]
    alone = [*rows(), *rows(reconstruct=False)[:2], *rows(bound=0.5)[:1]]
    together = batch.attend(query, 0.4)
    for row, one in enumerate(alone):
        one.update(new_keys[row : row + 1], new_values[row : row + 1])
        assert_close(together[row : row + 1], one.attend(query[row : row + 1], 0.4), atol=1e-6, rtol=1e-6)
    assert not rows()[0].joins(decoded) and not decoded.joins(rows()[0])


def test_a_block_of_tokens_is_read_one_by_one_by_all_rows_at_once():
    batch, alone = batch_layer(rows()), rows()
    generator = torch.Generator().manual_seed(5)
    query, keys, values = (torch.randn(3, h, 4, DIM, generator=generator) for h in (HEADS * GROUP, HEADS, HEADS))
    batch.update(keys, values)
    together = batch.attend(query, 0.4)
    for row, one in enumerate(alone):
        held = []
        for token in range(4):
            own = slice(row, row + 1), slice(None), slice(token, token + 1)
            one.update(keys[own], values[own])
            held.append(one.filled_bytes)
            assert_close(together[own], one.attend(query[own], 0.4), atol=1e-6, rtol=1e-6)
        assert [step[0] for step in batch.counted[row]] == held
