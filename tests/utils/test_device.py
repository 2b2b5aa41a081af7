"""Memory of a GPU: what its driver has and what torch's allocator holds for new tensors."""

import torch

from kvbench.utils.device import free_bytes


def test_blocks_that_the_allocator_keeps_are_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 80))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60 + device.index)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 40)
    assert (free_bytes("cuda:0"), free_bytes("cuda:1")) == (30, 31)
    assert free_bytes("cpu") > 2**20
