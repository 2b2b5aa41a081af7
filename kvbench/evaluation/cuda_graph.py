"""A step's device operations, recorded as a CUDA graph and repeated without Python."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """Record `work` on the current GPU, run it once, and return what repeats it.

    Raises RuntimeError where it cannot be recorded; the current stream is then the one of before, and nothing has run.
    `torch.cuda.graph` would also wait for the device and hand all cached memory back to the driver, each time.
    """
    device = torch.cuda.current_device()
    graph, stream = torch.cuda.CUDAGraph(), side_stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    with uncollected(), torch.cuda.stream(stream):
        graph.capture_begin(pool=memory_pool(device).id)  # records from here on; nothing runs
        try:
            work()
        except BaseException:
            with suppress(RuntimeError):  # what made `work` fail may have ended the recording, too
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    graph.replay()

    def repeat() -> None:
        graph.replay()

    return repeat


@cache
def memory_pool(device: int) -> torch.cuda.MemPool:
    """What all graphs of a GPU take their memory from: of a step only the logits are read, before another is repeated.

    A pool lives while a graph or a MemPool refers to it. `torch.cuda.graph_pool_handle` is only a number: once the last
    graph has ended, no further one could be recorded into its pool.
    """
    with torch.cuda.device(device):
        return torch.cuda.MemPool()


@cache
def side_stream(device: int) -> torch.cuda.Stream:
    """The stream on which all graphs are recorded: the default stream cannot be, and a pool is for one stream."""
    return torch.cuda.Stream(device)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without collecting garbage, among which a tensor's memory may be that a stream may not free while it captures."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
