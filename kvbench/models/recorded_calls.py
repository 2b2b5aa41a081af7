"""The functions of torch that a pass of a model calls, in order."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode, has_torch_function_unary
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily

# Methods whose answer is the same for every token, as long as shapes are: of sizes, types and the like
OF_SHAPES = {"size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "__len__", "element_size"}
OF_SHAPES |= {"is_floating_point", "is_complex", "get_device", "_set_grad_enabled"}
# Operations after which a number on the host, or a shape, depends on what a tensor holds
READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
MASKS = {torch.bool, torch.uint8}
Result = TypeVar("Result")


class Call(NamedTuple):
    """A function that was called, and what it returned."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @property
    def opaque(self) -> bool:
        """Whether it is a function of kvbench that asked whether it is recorded (`registered_attention` and
        `BatchCache.update`): what it calls was not, and may be something else for the next token."""
        return isinstance(self.function, FunctionType) and self.function.__module__.partition(".")[0] == "kvbench"


class Recording(NamedTuple, Generic[Result]):
    """What a piece of work returned, and what it called."""

    out: Result
    calls: list[Call]
    reads: list[str]  # operations by which Python came to depend on what tensors hold


class _Reads(TorchDispatchMode):
    """Notes the operations by which Python comes to depend on what tensors hold."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_numbers = func is torch.ops.aten.index.Tensor and all(x is None or x.dtype not in MASKS for x in args[1])
        if READS & set(func.tags) and not by_numbers:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


class _Calls(TorchFunctionMode):
    """Keeps every function that is called with tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = Call(func, args, kwargs or {}, None)
        if call.opaque:
            with _pop_mode_temporarily():
                out = func(*args, **call.kwargs)
        else:
            out = func(*args, **call.kwargs)
        name = getattr(func, "__name__", "")
        if name not in OF_SHAPES and (name != "__get__" or isinstance(out, Tensor)):  # else x.shape, x.dtype, …
            self.made.append(call._replace(out=out))
        return out


def record(work: Callable[[], Result]) -> Recording[Result]:
    """What work() returns, the functions that it called with tensors, and the operations by which Python came to depend
    on what tensors hold."""
    with _Reads() as reads, _Calls() as calls:
        out = work()
    return Recording(out, calls.made, reads.found)


def recording(tensor: Tensor) -> bool:
    """Whether calls with `tensor` are recorded, and a function that is to be one of them should say so."""
    return has_torch_function_unary(tensor) and isinstance(_get_current_function_mode(), _Calls)
