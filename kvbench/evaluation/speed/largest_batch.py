"""The largest batch that fits into memory, by doubling and bisection."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.measure import Footprint, attempt
from kvbench.utils.device import gpus
from kvbench.utils.host import memory


def largest(fits: Callable[[int], bool]) -> int:
    """The largest batch for which `fits` holds, given that it holds for all smaller ones; 0 if for none."""
    if not fits(1):
        return 0
    low = 1
    while fits(2 * low):
        low *= 2
    high = 2 * low  # does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class MemoryLimit:
    """The memory that a model and a batch must fit into.

    On GPUs a batch is tried, with the allocator limited to its share of the memory. On a CPU the bytes are counted:
    weights, caches, and keys and values of layers not yet compressed, but no temporary activations.
    """

    def __init__(self, model: PreTrainedModel, memory_gib: float | None):
        self.model = model
        self.gpus = gpus(model)
        self.how = "tried" if self.gpus else "counted"
        self.weights = sum(parameter.nbytes for parameter in model.parameters())
        everything = sum(map(total, self.gpus)) if self.gpus else memory()
        self.bytes = everything if memory_gib is None else int(memory_gib * 2**30)
        self.share = min(self.bytes / everything, 1.0)

    def holds(self, batch: int, footprint: Footprint) -> bool:
        """Whether a batch of sequences of this footprint fits by counted bytes; on GPUs only such a batch is tried."""
        return self.weights + footprint.peak_of(batch) <= self.bytes

    def largest(self, ids: Tensor, setting: Setting, new_tokens: int, footprint: Footprint, engine: str) -> int:
        """The largest batch of a setting that decodes `new_tokens` tokens after the prompt ids [n]."""

        def fits(batch: int) -> bool:
            if not self.holds(batch, footprint):
                return False
            return not self.gpus or attempt(self.model, ids, setting, batch, new_tokens, footprint, engine) is not None

        return largest(fits)

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Limit the allocator of every GPU to this memory."""
        for device in self.gpus:
            torch.cuda.set_per_process_memory_fraction(self.share, device)
        try:
            yield
        finally:
            for device in self.gpus:
                torch.cuda.set_per_process_memory_fraction(1.0, device)


def total(device: torch.device) -> int:
    """All memory of a GPU in bytes."""
    return torch.cuda.get_device_properties(device).total_memory
