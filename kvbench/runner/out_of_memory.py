"""Full memory, of a GPU or of the machine, reported as a user's error."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvbench.errors import UserError

# In the message of the plain RuntimeError that torch raises when its allocator for the CPU fails.
ON_CPU = "DefaultCPUAllocator: can't allocate memory"


@contextmanager
def out_of_memory(doing: str, then: str = "") -> Iterator[None]:
    """Raise UserError "the GPU's memory is full while `doing`: …`then`", or the machine's, if an allocation fails.

    The beginning of torch's message states how much was requested, and its hints what may help: both are kept.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"the GPU's memory is full while {doing}: {request_and_hints(str(error))}{then}") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and ON_CPU not in str(error):
            raise
        requested = f": {str(error).partition(ON_CPU)[2].partition('. Error')[0].lstrip(': ')}" if str(error) else ""
        raise UserError(f"the machine's memory is full while {doing}{requested}{then}") from error


def request_and_hints(message: str) -> str:
    """The sentences of torch's message about the requested memory, reserved fragments and possible remedies."""
    sentences = message.replace(".  ", ". ").strip().split(". ")
    hints = [text for text in sentences[2:] if "reserved by PyTorch" in text or "expandable_segments" in text]
    return ". ".join(text.rstrip(".") for text in (*sentences[:2], *hints))
