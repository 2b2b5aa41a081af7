"""A step's device operations, recorded as a CUDA graph and repeated without Python."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch

from kvbench.utils.collector import collector_off


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """Record `work` on the current GPU, run it once, and return a function that repeats it.

    Raises RuntimeError if it cannot be recorded: then nothing has run, and the current stream is the same as before.
    `torch.cuda.graph` would also wait for the device and hand all cached memory back to the driver, each time.
    """
    device = torch.cuda.current_device()
    graph = captured(work, device, first_graph(device).pool())
    graph.replay()
    return graph.replay


def captured(work: Callable[[], object], device: int, pool: tuple[int, int] | None) -> torch.cuda.CUDAGraph:
    """A graph of `work`, which has not run. Without a `pool` the graph has its own."""
    graph, stream = torch.cuda.CUDAGraph(), side_stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    # the garbage collector could free a tensor, which a stream may not do while it captures
    with collector_off(), torch.cuda.stream(stream):
        graph.capture_begin(pool=pool)  # records from here on; nothing runs
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # what made `work` fail may have ended the recording, too
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@cache
def first_graph(device: int) -> torch.cuda.CUDAGraph:
    """A graph that is never freed. All other graphs of the GPU take their memory from its pool, which they can share
    because a step's logits are read before another step is repeated.

    A pool has memory of the GPU and pinned memory of the host. Once the last graph recorded into it is gone, no other
    can be recorded into it. `torch.cuda.graph_pool_handle` is only a number, and a `torch.cuda.MemPool` keeps only the
    GPU's half alive (torch 2.11: "use_count > 0" in CachingHostAllocator).
    """
    with torch.cuda.device(device):
        return captured(_something, device, None)


def _something() -> None:
    """Launch a kernel: torch warns of a graph without any."""
    torch.zeros(1, device="cuda")


@cache
def side_stream(device: int) -> torch.cuda.Stream:
    """The stream on which all graphs are recorded: the default stream cannot be, and a pool belongs to one stream."""
    return torch.cuda.Stream(device)
