"""Loops compiled for the CPU compute what the torch references do."""

import os

import numba
import pytest
import torch

from kvbench.methods.spindlekv.ops.compiled import loops
from kvbench.methods.spindlekv.ops.compiled.loops import most_threads
from kvbench.methods.spindlekv.ops.greedy_cover import greedy_cover
from kvbench.ops.operator import use_kernels


@pytest.fixture
def threads(monkeypatch):
    """Torch uses two; how many Numba was to use, each time."""
    counts, tell, before = [], numba.set_num_threads, torch.get_num_threads()
    monkeypatch.setattr(loops, "set_num_threads", lambda count: counts.append(count) or tell(count))
    torch.set_num_threads(2)
    yield counts
    torch.set_num_threads(before)


@pytest.mark.heavy
def test_threads_that_share_a_loop_compute_what_one_does(threads):
    x = torch.randn(700, 4, generator=torch.Generator().manual_seed(0))
    found = greedy_cover(x, 0.9).references
    with use_kernels("torch"):
        assert torch.equal(found, greedy_cover(x, 0.9).references)
    assert set(threads) == ({2} if most_threads(os.getpid()) > 1 else set())


def test_a_forked_process_does_not_use_the_threads_of_its_parent():
    assert most_threads(os.getpid() + 1) == 1
