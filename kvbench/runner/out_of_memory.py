"""Full memory, of a GPU or of the machine, reported as a user's error."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvbench.errors import UserError

# What torch says where its allocator for the CPU fails: a plain RuntimeError.
ON_CPU = "DefaultCPUAllocator: can't allocate memory"


@contextmanager
def out_of_memory(doing: str, then: str = "") -> Iterator[None]:
    """Raise UserError "the GPU's memory is full while `doing`: …`then`", or the machine's, where an allocation fails.

    The beginning of torch's message says how much was requested, and is kept.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        requested = ". ".join(str(error).strip().split(". ")[:2])
        raise UserError(f"the GPU's memory is full while {doing}: {requested}{then}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and ON_CPU not in str(error):
            raise
        requested = f": {str(error).partition(ON_CPU)[2].partition('. Error')[0].lstrip(': ')}" if str(error) else ""
        raise UserError(f"the machine's memory is full while {doing}{requested}{then}") from error
