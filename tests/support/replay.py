"""A CUDA graph's replay on a CPU: the operations of a call, recorded with their tensors and repeated without Python.

What the call took from the host, such as a position or a length as a number, is what it was when it was recorded.
"""

from collections.abc import Callable

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.support.launches import READS, WAITS


class Recorded(TorchDispatchMode):
    """Every operation that torch dispatches within it; `reads` are the names of those that read a device."""

    def __init__(self, work: Callable[[], object]):
        super().__init__()
        self.operations: list[tuple] = []
        self.reads: list[str] = []
        with self:
            work()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if name in READS | WAITS:
            self.reads.append(name)
        out = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, out))
        return out

    def replay(self) -> None:
        """Repeat the operations; results go where those of the recording are."""
        for func, args, kwargs, out in self.operations:
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Allocations(TorchDispatchMode):
    """What operations within it allocate, step by step: `outliving` is how many storages of a step still exist."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[StorageWeakRef]] = []

    def step(self) -> None:
        self.steps.append([])

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.untyped_storage()._cdata not in given:
                self.steps[-1].append(StorageWeakRef(x.untyped_storage()))
        return out

    @property
    def outliving(self) -> list[int]:
        """Of each step, the last one excepted, whose result may still be read."""
        return [sum(not storage.expired() for storage in step) for step in self.steps[:-1]]
