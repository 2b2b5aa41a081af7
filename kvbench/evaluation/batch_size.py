"""Batches that do not fit into a GPU's memory are halved and tried again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvbench.utils.console import warn


class BatchTooLarge(Exception):
    """A GPU's memory was full while several sequences were held. `fits`, half as many, is the size to try next."""

    def __init__(self, fits: int):
        super().__init__(fits)
        self.fits = fits


@contextmanager
def in_a_batch(held: int, most: int | None) -> Iterator[None]:
    """Warn and raise BatchTooLarge if memory is full with the caches of `held` settings or sequences, of which at most
    `most` decode at the same time. A single one is no batch: its torch.OutOfMemoryError passes through."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if held == 1 or most == 1:
            raise
        fits = min(held, most or held) // 2
        warn(
            f"the GPU's memory is full with the caches of {held} settings or answers: from here on, decode.batch={fits}"
        )
        raise BatchTooLarge(fits) from error


def free_memory() -> None:
    """Free the memory of a failed batch, and the fragments that torch's allocator keeps."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
