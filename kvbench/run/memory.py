"""A device whose memory is full, reported as a user's error."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvbench.errors import UserError


@contextmanager
def out_of_memory(doing: str, then: str = "") -> Iterator[None]:
    """Raise UserError "the GPU's memory is full while `doing`: …`then`" where torch finds no memory.

    Torch's message begins with the amount that was requested, which is kept.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        requested = ". ".join(str(error).strip().split(". ")[:2])
        raise UserError(f"the GPU's memory is full while {doing}: {requested}{then}") from error
