"""Loops compiled for the CPU compute what the torch references do."""

import math
import os
from importlib import import_module

import numba
import numpy as np
import pytest
import torch

from kvbench.ops.compiled import loops
from kvbench.ops.compiled.loops import most_threads, softmax, whole
from kvbench.ops.greedy_cover import greedy_cover
from kvbench.ops.operator import use_kernels
from kvbench.ops.quantised_attention import quantised_attention
from kvbench.ops.rope import Rope
from tests.support.codebook_caches import random_cache
from tests.support.codebook_twins import TOLERANCE, append_agrees, attention_agrees
from tests.support.quantised import arguments, sequences
from tests.support.tiny import tiny_model


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("group", [1, 3])
def test_codebooks_of_odd_lengths_and_none_are_read(group, dtype):
    cache = random_cache([37, 0], [11, 0], [5, 7], group, 8, dtype, bits=[0])
    attention_agrees(cache, group)
    attention_agrees(cache, group, decoded=3)


def test_codebooks_of_many_entries_of_several_streams_and_without_magnitudes_are_read():
    attention_agrees(random_cache([300, 20], [400, 3], [1, 1], 2, 8, bits=[0, 1]), 2)  # references of two bytes
    attention_agrees(random_cache([9, 9], [70000, 300], [1, 1], 1, 8), 1)  # of four
    attention_agrees(random_cache([20, 13], [17], [3, 3], 2, 8, reconstruct=False), 2, decoded=2)
    attention_agrees(random_cache([20, 13, 8, 9], [7, 6, 5, 4], [3, 3], 1, 8, torch.bfloat16), 1, decoded=2)
    rope = Rope.of(tiny_model(head_dim=80))
    attention_agrees(random_cache([21, 5], [9, 3], [0, 2], 2, 80, bits=[1], runs=[0], rope=rope), 2, decoded=1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_each_stream_finds_the_nearest_entry_of_its_book_or_adds_one(dtype):
    append_agrees(random_cache([9, 0, 5], [40, 0, 3], [1, 1, 1], 2, 8, dtype))
    append_agrees(random_cache([9, 4, 5], [17], [1, 1, 1], 2, 8, dtype))  # streams of one book
    append_agrees(random_cache([9, 4, 5, 2], [7, 6, 5, 4], [1, 1], 1, 8, dtype), steps=2)  # query heads with books
    append_agrees(random_cache([9, 4], [7, 6], [1, 1], 1, 8, dtype, reconstruct=False))
    append_agrees(random_cache([9, 4], [300, 70000], [1, 1], 1, 8, dtype), steps=2)


def test_theta_of_one_finds_nothing():
    cache = random_cache([9], [7], [1], 1, 8, bound=math.inf)
    for _ in range(3):
        cache.update(torch.ones(1, 1, 1, 8), torch.ones(1, 1, 1, 8))
    assert cache.books.v.sizes.tolist() == [10]


@pytest.mark.parametrize("scaling", [0.01, 1.0, 30.0])
def test_weights_are_those_of_torch(scaling):
    hidden, large, few = (torch.randn(n, generator=torch.Generator().manual_seed(n)) * 9 for n in (1000, 77, 1))
    hidden[::3] = -torch.inf
    large[5] = 1000 / scaling  # the others differ by more than exp has numbers for
    for logits in (hidden, large, few):
        found = logits.clone()
        softmax(found.numpy(), np.float32(scaling))
        torch.testing.assert_close(found, (logits * scaling).softmax(dim=0), atol=1e-9, rtol=3e-6)
        assert found[logits.isneginf()].eq(0).all()


def test_weights_of_nothing_and_of_no_number_are_no_numbers():
    for logits in (torch.full((9,), -torch.inf), torch.tensor([1.0, torch.nan, 2.0])):
        softmax(logits.numpy(), np.float32(1))
        assert logits.isnan().all()


def test_a_view_of_a_buffer_is_read_in_place_with_its_room_and_anything_else_is_copied():
    buffer = torch.arange(2 * 5 * 4.0).view(2, 5, 4)
    view = buffer[:, :3]
    assert whole(view).shape == (2, 5, 4) and whole(view).ctypes.data == buffer.data_ptr()
    for other in (buffer[:, 1:3], buffer[..., :2], buffer.mT, buffer[:, :0], buffer[:1]):
        found = whole(other)
        assert (found[:, : other.shape[1]] == other.numpy()).all() and found.flags.c_contiguous


@pytest.fixture
def threads(monkeypatch):
    """Torch uses two; how many Numba was to use, each time."""
    counts, tell, before = [], numba.set_num_threads, torch.get_num_threads()
    monkeypatch.setattr(loops, "set_num_threads", lambda count: counts.append(count) or tell(count))
    torch.set_num_threads(2)
    yield counts
    torch.set_num_threads(before)


def test_threads_that_share_a_loop_compute_what_one_does(threads):
    attention_agrees(random_cache([37, 0], [11, 0], [5, 7], 3, 8, bits=[0]), 3, decoded=3)
    append_agrees(random_cache([9, 0, 5], [40, 0, 3], [1, 1, 1], 2, 8), steps=2)
    keys, values = sequences(300, 3, 64, 4, 32, 64)
    given = arguments(torch.randn(1, 9, 1, 64, generator=torch.Generator().manual_seed(0)), keys, values, 0.125)
    x = torch.randn(700, 4, generator=torch.Generator().manual_seed(0))
    found = quantised_attention(*given), greedy_cover(x, 0.9).references
    with use_kernels("torch"):
        torch.testing.assert_close(found[0], quantised_attention(*given))
        assert torch.equal(found[1], greedy_cover(x, 0.9).references)
    assert set(threads) == ({2} if most_threads(os.getpid()) > 1 else set())


def test_a_forked_process_does_not_use_the_threads_of_its_parent():
    assert most_threads(os.getpid() + 1) == 1


MODULES = [
    "kvbench.ops.compiled.codebook_append",
    "kvbench.ops.compiled.codebook_attention",
    "kvbench.ops.compiled.from_float8",
    "kvbench.ops.compiled.greedy_covers",
    "kvbench.ops.compiled.quantised_attention",
]


@pytest.mark.parametrize("module", MODULES)
def test_the_loops_of_an_operator_are_in_a_module_of_its_name(module):
    assert callable(getattr(import_module(module), module.rpartition(".")[2]))
