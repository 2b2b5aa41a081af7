"""Packed caches: heads that keep their own numbers of tokens, and the rows of a batch moving into one buffer."""

import weakref
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.base import BLOCK, Row, held_bytes, storage_bytes
from kvbench.cache.batch_layer import BatchLayer
from kvbench.cache.dense import DenseLayer
from kvbench.cache.packed import flat_positions
from kvbench.cache.ragged import RaggedLayer, UnionLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods import FullKV
from kvbench.methods.storage.dense import Dense
from kvbench.methods.streaming_llm import SlidingLayer
from tests.support import launch_counts
from tests.support.batch_layers import batch_layer
from tests.support.every_method import setting

KV, HEADS, N, DIM = 2, 6, 20, 8
KEPT = Kept.tokens(N, N, N, KV)
KINDS = ["dense", "unfolded", "ragged", "ragged by query head", "union", "sliding"]


def layer(kind: str, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(KV, N, DIM, generator=generator) for _ in range(2))
    unfolded = [x.repeat_interleave(HEADS // KV, 0)[:, :7].contiguous() for x in (keys, values)]
    wanted = torch.stack([torch.randperm(N, generator=generator) < 5 for _ in range(HEADS)])
    chosen = torch.rand(HEADS, N, generator=generator) < 0.4
    make = {
        "dense": lambda: DenseLayer(keys, values, N, KEPT),
        "unfolded": lambda: DenseLayer(*unfolded, N, KEPT),
        "ragged": lambda: RaggedLayer(keys, values, chosen[:KV], N, KEPT),
        "ragged by query head": lambda: RaggedLayer(keys, values, chosen, N, KEPT),
        "union": lambda: UnionLayer(keys, values, wanted.unflatten(0, (KV, -1)), N, KEPT),
        "sliding": lambda: SlidingLayer(keys[:, :9], values[:, :9], N, KEPT, 9, 2, None),
    }
    return make[kind]()


def stepped(layers, rows: int, step: int, t: int = 1):
    """The outputs of layers that are given the same random tokens and queries, of which a row takes its own."""
    generator = torch.Generator().manual_seed(1000 + step)
    query, keys, values = (torch.randn(rows, heads, t, DIM, generator=generator) for heads in (HEADS, KV, KV))
    outputs = []
    for layer, at in layers:
        layer.update(keys[at], values[at])
        outputs.append(layer.attend(query[at], 0.4))
    return outputs


def test_a_query_heads_own_tokens_are_those_of_a_masked_cache():
    generator = torch.Generator().manual_seed(3)
    keys, values = (torch.randn(KV, N, DIM, generator=generator) for _ in range(2))
    chosen = torch.rand(HEADS, N, generator=generator) < 0.3
    chosen[4] = False
    cache = RaggedLayer(keys, values, chosen, N, KEPT)
    assert cache.nbytes == int(chosen.sum()) * 2 * DIM * 4
    new_keys, new_values, query = (torch.randn(1, h, 1, DIM, generator=generator) for h in (KV, KV, HEADS))
    cache.update(new_keys, new_values)
    keys, values = (
        torch.cat(x, 1).repeat_interleave(HEADS // KV, 0) for x in ([keys, new_keys[0]], [values, new_values[0]])
    )
    seen = torch.cat([chosen, torch.ones(HEADS, 1, dtype=torch.bool)], 1)
    weights = (query[0] @ keys.mT * 0.4).masked_fill(~seen[:, None], float("-inf")).softmax(-1)
    assert_close(cache.attend(query, 0.4)[0], weights @ values, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kinds", [KINDS, ["dense", "dense", "dense"], ["ragged", "union"], ["sliding", "sliding"]])
def test_rows_of_a_batch_attend_as_each_does_alone_also_after_some_have_left(kinds):
    """Over more steps than a block of room."""
    batch = batch_layer([layer(kind, i) for i, kind in enumerate(kinds)])
    alone = [layer(kind, i) for i, kind in enumerate(kinds)]
    for step in range(2 * BLOCK + 5):
        if step in (3, BLOCK + 2, BLOCK + 3) and len(alone) > 1:
            stay = [row for row in range(len(alone)) if row != step % len(alone)]
            batch.keep(stay)
            alone = [alone[row] for row in stay]
        by_itself = [(one, slice(row, row + 1)) for row, one in enumerate(alone)]
        together, *single = stepped([(batch, slice(None)), *by_itself], len(alone), step)
        assert_close(together, torch.cat(single), atol=1e-6, rtol=1e-5)
    assert batch.get_seq_length() == alone[0].get_seq_length() == N + 2 * BLOCK + 5


def test_a_block_of_tokens_is_appended_to_every_row():
    kinds = ["dense", "unfolded", "ragged", "ragged by query head", "union"]
    batch = batch_layer([layer(kind) for kind in kinds])
    alone = [(layer(kind), slice(row, row + 1)) for row, kind in enumerate(kinds)]
    for step, t in enumerate([1, 5, 1, BLOCK + 3]):
        together, *single = stepped([(batch, slice(None)), *alone], len(kinds), step, t)
        assert_close(together, torch.cat(single), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_dense_caches_of_one_shape_attend_as_one_attention_over_all_of_them(dtype):
    """To two units of the dtype: a matrix product may round by where its operands lie in memory."""
    keys, values = (torch.randn(3, KV, N, DIM).to(dtype) for _ in range(2))
    batch = batch_layer([DenseLayer(*row, N, KEPT) for row in zip(keys, values, strict=True)])
    query, new_keys, new_values = (torch.randn(3, heads, 1, DIM).to(dtype) for heads in (HEADS, KV, KV))
    batch.update(new_keys, new_values)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, torch.cat([keys, new_keys], 2), torch.cat([values, new_values], 2), scale=0.4, enable_gqa=True
    )
    two = 2 * torch.finfo(dtype).eps
    assert_close(batch.attend(query, 0.4), expected, rtol=two, atol=two)


def test_a_packed_row_counts_the_bytes_that_it_would_hold_alone_and_no_longer_grows_once_it_has_left():
    alone = [layer(kind) for kind in KINDS]
    before = [cache.nbytes for cache in alone]
    batch = batch_layer([layer(kind) for kind in KINDS])
    every = [(batch, slice(None)), *((one, slice(row, row + 1)) for row, one in enumerate(alone))]
    stepped(every, len(KINDS), 0)
    batched = batch.rows
    assert [cache.nbytes for cache in batched] == [cache.nbytes for cache in alone]
    assert all(cache.nbytes > size for cache, size in zip(batched[:-1], before, strict=False))
    assert storage_bytes(batch.tensors()) == held_bytes(batched), "nothing is held twice"
    batch.keep([1, 2])
    left = batched[0].nbytes
    for step in range(BLOCK):
        stepped([(batch, slice(None))], 2, step)
    assert batched[0].nbytes == left and batched[1].nbytes > alone[1].nbytes
    assert storage_bytes(batch.tensors()) == held_bytes(batched[1:3]), "what left was freed at the next move"


def test_what_was_joined_is_freed_and_in_its_place_a_row_says_what_was_kept():
    sequences = [[layer(kind)] for kind in ("dense", "unfolded", "sliding")]
    buffers = [weakref.ref(caches[0].k.buffer) for caches in sequences]
    batch = BatchLayer(sequences)
    stepped([(batch, slice(None))], len(sequences), 0)
    assert [buffer() is None for buffer in buffers] == [True, True, False]
    assert [caches[0] for caches in sequences] == batch.rows
    assert [isinstance(caches[0], Row) for caches in sequences] == [True, True, False]
    assert all(caches[0].kept is KEPT for caches in sequences)


def test_positions_of_true_elements_are_those_of_nonzero():
    for mask in (torch.rand(50) < 0.3, torch.zeros(5, dtype=torch.bool), torch.ones(4, dtype=torch.bool)):
        assert torch.equal(flat_positions(mask, int(mask.sum())), mask.nonzero()[:, 0])


class Ragged(FullKV):
    """Another number of tokens in each KV head."""

    def compress(self, state, budget):
        places = torch.arange(state.n, device=state.layers[0].keys.device)
        ends = state.n - 3 * torch.arange(launch_counts.KV_HEADS, device=places.device)
        return [RaggedLayer(x.keys, x.values, places < ends[:, None], x.seen, KEPT) for x in state.layers]


@pytest.mark.heavy
def test_packed_caches_decode_with_as_few_kernels_as_a_full_one_and_without_a_wait():
    full, ragged = (FullKV(), 160), (Ragged(), 160)
    snapkv, union = (
        (replace(setting("snapkv_paper", 0.3).method, storage=Dense(x)), 48) for x in ("unfolded", "union")
    )
    alone = launch_counts.decoding_per_layer(160, lambda _: [full])[0]
    for batch in ([ragged], [union], [full, ragged, snapkv, union] * 3):
        token, mean = launch_counts.decoding_per_layer(160, lambda _, batch=batch: batch)
        assert token.kernels <= alone.kernels <= 60 and token.operations <= alone.operations
        assert token.waits == token.uploads == mean.waits == 0


def test_compression_to_a_union_waits_once():
    one = setting("snapkv_paper", 0.3)
    one = replace(one, method=replace(one.method, storage=Dense("union")))
    counts = launch_counts.per_layer(lambda model: launch_counts.compression_counts(one, model, 160))
    assert counts.names["wait: tolist"] <= 2 and counts.waits <= 2  # the histogram of positions is the other
