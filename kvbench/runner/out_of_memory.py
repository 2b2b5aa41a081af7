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

    The beginning of torch's message says how much was requested, and its hints what may help: both are kept.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"the GPU's memory is full while {doing}: {of_gpu(str(error))}{then}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and ON_CPU not in str(error):
            raise
        requested = f": {str(error).partition(ON_CPU)[2].partition('. Error')[0].lstrip(': ')}" if str(error) else ""
        raise UserError(f"the machine's memory is full while {doing}{requested}{then}") from error


def of_gpu(message: str) -> str:
    """Of torch's message the sentences that say how much was requested, and what is reserved in pieces and may help."""
    sentences = message.replace(".  ", ". ").strip().split(". ")
    hints = [one for one in sentences[2:] if "reserved by PyTorch" in one or "expandable_segments" in one]
    return ". ".join(one.rstrip(".") for one in (*sentences[:2], *hints))
