"""Capturing a CUDA graph, with what torch has for it replaced: on a machine without a GPU."""

import gc
from typing import ClassVar

import pytest
import torch

from kvbench.evaluation import steps

POOL = (1, 7)


class Graph:
    replays = 0

    def replay(self):
        self.replays += 1


class Capturing:
    """`torch.cuda.graph`, with what each was given and whether garbage could be collected within."""

    given: ClassVar[list] = []

    def __init__(self, graph, pool):
        self.graph, self.pool = graph, pool

    def __enter__(self):
        self.given.append((self.graph, self.pool, gc.isenabled()))

    def __exit__(self, *error):
        pass


@pytest.fixture
def captured(monkeypatch):
    pools = iter([POOL])
    steps.memory_pool.cache_clear()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Capturing)
    monkeypatch.setattr(Capturing, "given", [])
    yield Capturing.given
    steps.memory_pool.cache_clear()


def test_all_graphs_have_one_memory_pool_and_run_once_when_they_are_captured(captured):
    repeats = [steps.cuda_graph(lambda: None) for _ in range(3)]
    assert [(pool, collects) for _, pool, collects in captured] == [(POOL, False)] * 3
    assert gc.isenabled() and [graph.replays for graph, *_ in captured] == [1, 1, 1]
    repeats[1]()
    assert [graph.replays for graph, *_ in captured] == [1, 2, 1]


def test_garbage_is_collected_again_after_a_failed_capture_and_stays_off_where_it_was(captured):
    def fails():
        raise RuntimeError("not permitted")

    with pytest.raises(RuntimeError, match="not permitted"):
        steps.cuda_graph(fails)
    assert gc.isenabled()
    gc.disable()
    try:
        steps.cuda_graph(lambda: None)
        assert not gc.isenabled()
    finally:
        gc.enable()
