"""Operators: functions of tensors with a torch reference and a Triton kernel that computes the same.

    @operator(launches=1, fake=lambda x: x.new_empty(x.shape))
    def double(x: Tensor) -> Tensor:
        return 2 * x

registers `torch.ops.kvbench.double`, and `double` calls it for tensors on a GPU. A dispatch counter sees one entry,
`LAUNCHES` has the number of kernels that a call launches, and `torch.compile` traces a call as one node of its graph,
with the shapes and dtypes that `fake` returns. If a suitable Triton is installed, the function `double` of the module
`kernels.double` beside the reference's module runs instead; on a CPU the function of `compiled.double`, if it exists
and Numba is installed. `use_kernels` forces torch or Triton. With a `Softmax` instead of a scaling, the reference runs
on every device. Triton launches on the current device, wherever the arguments are, so a call makes the arguments'
device the current device.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from types import NoneType
from typing import Any, Literal, TypeVar, cast

import torch
from torch.compiler import is_dynamo_compiling

from kvbench.ops.gpu import build_error, runs_kernels
from kvbench.ops.signature import Signature
from kvbench.ops.softmax import Softmax

Kernels = Literal["auto", "torch", "triton"]
Function = TypeVar("Function", bound=Callable[..., Any])
LAUNCHES: dict[str, int] = {}
OLDEST_TRITON = (3, 6)  # 3.2 to 3.5 do not compile all kernels
_LIBRARY = torch.library.Library("kvbench", "DEF")
_chosen: Kernels = "auto"


def operator(
    launches: int,
    fake: Callable[..., object] | None = None,
    mutates: Sequence[str] = (),
    torch_first: Callable[..., bool] | None = None,
    takes: Callable[..., bool] | None = None,
) -> Callable[[Function], Function]:
    """Register a torch reference, whose kernel launches `launches` GPU kernels a call, under its name.

    The schema comes from the annotations of the reference (see `Signature`): tensors, numbers, and named tuples of
    these. The first parameter is a tensor, or a tuple that begins with a tensor. `mutates` names the parameters whose
    tensors are written. `fake` takes the same arguments and returns contiguous empty results, from shapes, dtypes and
    devices; an operator that returns nothing needs no `fake`. `torch_first(arguments)`: whether the reference calls a
    GPU kernel of torch; then the reference runs unless Triton is forced. `takes(arguments)`: whether the kernel
    supports these arguments; if not, the reference always runs.
    """

    def register(reference: Function) -> Function:
        signature = Signature(reference, mutates)
        name, returned = signature.name, signature.result
        if fake is None and returned is not NoneType:
            raise TypeError(f"operator {name} returns a result: it needs a `fake`")

        def run(*flat: Any) -> object:
            args, device = signature.grouped(flat), flat[0].device
            if device.type == "cuda" and _chosen == "auto" and torch_first and torch_first(*args):
                return reference(*args)
            if takes and not takes(*args):
                return reference(*args)
            return implementation(reference, device)(*args)

        def faked(*flat: Any) -> object:
            return fake(*signature.grouped(flat)) if fake else None

        _LIBRARY.define(signature.schema)
        _LIBRARY.impl(name, run, "CompositeExplicitAutograd")  # every device: the reference is plain torch
        torch.library.register_fake(f"kvbench::{name}", faked, lib=_LIBRARY)
        LAUNCHES[name] = launches
        dispatched = getattr(torch.ops.kvbench, name).default
        scaling, named = signature.scaling, issubclass(returned, tuple)

        def registered(args: tuple[Any, ...]) -> object:
            out = dispatched(*signature.flat(signature.complete(args)))
            return returned(*out) if named else out

        @wraps(reference)
        def call(*args: Any) -> object:
            if scaling is not None and isinstance(args[scaling], Softmax):
                return reference(*args)  # no kernel computes soft caps or sinks
            if is_dynamo_compiling():
                return registered(args)  # one node; the compiled code makes its device the current one
            first = args[0]
            device: torch.device = (first[0] if isinstance(first, tuple) else first).device
            # skip torch's dispatcher, which takes longer than some operators, unless other code watches it
            if device.type == "cpu" and not watched():
                return implementation(reference, device)(*args)
            if device.type != "cuda":
                return registered(args)
            with torch.cuda.device(device):
                return registered(args)

        return cast(Function, call)

    return register


def like_first(first: torch.Tensor, *rest: object) -> torch.Tensor:
    """The `fake` of an operator whose result has the shape and dtype of its first argument."""
    return first.new_empty(first.shape)


def of_one_width(keys: torch.Tensor, values: torch.Tensor, *rest: object) -> bool:
    """The `takes` of an operator whose kernel needs keys and values, its first two arguments, of the same width."""
    return keys.shape[-1] == values.shape[-1]


def watched() -> bool:
    """Whether other code counts, fakes or overrides operations."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def implementation(reference: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The function that computes an operator for tensors on `device`: its kernel or its torch reference. While torch
    compiles it is always the reference, which torch fuses."""
    if is_dynamo_compiling():
        return reference
    kernels = kernels_on(device)
    if kernels == "triton" and (_chosen == "triton" or has("kernels", reference)):
        return _function("kernels", reference)
    if kernels == "numba" and has("compiled", reference):
        return _function("compiled", reference)
    return reference


def kernels_on(device: torch.device) -> Literal["torch", "triton", "numba"]:
    """The kind of functions for tensors on `device`; an operator without one falls back to the torch reference."""
    if _chosen != "auto":
        return _chosen
    if device.type == "cpu":
        return "numba" if installed("numba") else "torch"
    fit = device.type == "cuda" and compiles(triton_version()) and runs_kernels(device)
    return "triton" if fit and build_error(device) is None else "torch"


@contextmanager
def use_kernels(choice: Kernels) -> Iterator[None]:
    """Within the block, `choice` decides how operators are computed: auto, torch or triton."""
    global _chosen
    before, _chosen = _chosen, choice
    try:
        yield
    finally:
        _chosen = before


def chosen() -> Kernels:
    """The current choice of `use_kernels`."""
    return _chosen


@cache
def installed(package: str) -> bool:
    return find_spec(package) is not None


@cache
def triton_version() -> str | None:
    """The version of Triton, whatever its distribution is called; None if it cannot be imported."""
    try:
        return getattr(import_module("triton"), "__version__", None)
    except ImportError:
        return None


def compiles(version: str | None) -> bool:
    """Whether this version of Triton compiles the kernels."""
    return version is not None and tuple(map(int, version.split(".")[:2])) >= OLDEST_TRITON


@cache
def has(folder: str, reference: Callable[..., Any]) -> bool:
    """Whether `folder` beside the reference's module has a module of the reference's name."""
    try:
        return find_spec(_module(folder, reference)) is not None
    except ImportError:  # the folder does not exist, or the reference is not in a package
        return False


@cache
def _function(folder: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], getattr(import_module(_module(folder, reference)), reference.__name__))


def _module(folder: str, reference: Callable[..., Any]) -> str:
    return f"{reference.__module__.rpartition('.')[0]}.{folder}.{reference.__name__}"
