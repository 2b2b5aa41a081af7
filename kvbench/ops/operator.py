"""Operators: functions of tensors with a torch reference and faster functions that compute the same.

    @operator("double(Tensor x) -> Tensor", launches=1)
    def double(x): return 2 * x

registers `torch.ops.kvbench.double`, which `double` calls for tensors on a GPU from then on: there an operator is one
entry for a dispatch counter, and `LAUNCHES` has the number of kernels that it launches. The function of the same name
in `kvbench.ops.kernels.double` runs instead, where a Triton that compiles it is installed; on a CPU that in
`kvbench.ops.compiled.double`, where there is one and Numba is installed. `use_kernels` forces torch or Triton. With a
`Softmax` in place of a scaling, the reference runs on every device. Triton launches on the current device, wherever the
arguments lie, so that device is made the current one for the call. `kvbench.ops.fakes` has a function of the same name
by which `torch.compile` traces a call as one node of its graph.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeVar, cast

import torch
from torch.compiler import is_dynamo_compiling

from kvbench.ops.gpu import build_error, runs_kernels
from kvbench.ops.softmax import Softmax

Kernels = Literal["auto", "torch", "triton"]
Function = TypeVar("Function", bound=Callable[..., Any])
LAUNCHES: dict[str, int] = {}
OLDEST_TRITON = (3, 6)  # 3.2 to 3.5 do not compile all of them
_LIBRARY = torch.library.Library("kvbench", "DEF")
_chosen: Kernels = "auto"


def operator(
    schema: str,
    launches: int,
    torch_first: Callable[..., bool] | None = None,
    returns: Callable[..., object] | None = None,
) -> Callable[[Function], Function]:
    """Register a torch reference under `schema`, whose kernel launches `launches` GPU kernels a call.

    Arguments that are written must be marked in the schema: `Tensor(a!) x`. `torch_first` says of a call's arguments
    whether torch has a GPU kernel for them that the reference calls: it then runs unless Triton is forced. `returns` is
    the NamedTuple of several results: torch's dispatcher returns them without their names.
    """
    name = schema.split("(")[0]

    def register(reference: Function) -> Function:
        def run(*args: object, **kwargs: object) -> object:
            device = _device(args, kwargs)
            if device.type == "cuda" and _chosen == "auto" and torch_first and torch_first(*args, **kwargs):
                return reference(*args, **kwargs)
            return implementation(name, reference, device)(*args, **kwargs)

        _LIBRARY.define(schema)
        _LIBRARY.impl(name, run, "CompositeExplicitAutograd")  # every device: the reference is plain torch
        torch.library.register_fake(f"kvbench::{name}", partial(_fake, name), lib=_LIBRARY)
        LAUNCHES[name] = launches
        dispatched = getattr(torch.ops.kvbench, name).default
        registered = dispatched if returns is None else lambda *args, **kwargs: returns(*dispatched(*args, **kwargs))

        @wraps(reference)
        def call(*args: object, **kwargs: object) -> object:
            if any(isinstance(x, Softmax) for x in (*args, *kwargs.values())):
                return reference(*args, **kwargs)  # no kernel bends logits
            if is_dynamo_compiling():
                return registered(*args, **kwargs)  # one node; the compiled code makes its device the current one
            device = _device(args, kwargs)
            # without torch's dispatcher, which takes longer than some loops, unless somebody watches it
            if device.type == "cpu" and not watched():
                return implementation(name, reference, device)(*args, **kwargs)
            if device.type != "cuda":
                return registered(*args, **kwargs)
            with torch.cuda.device(device):
                return registered(*args, **kwargs)

        return cast(Function, call)

    return register


def watched() -> bool:
    """Whether operations are counted, faked or overridden by somebody else."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def implementation(name: str, reference: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """What computes operator `name` for tensors on `device`: its kernel or its torch reference, which torch fuses where
    it compiles what is no operator."""
    if is_dynamo_compiling():
        return reference
    kernels = kernels_on(device)
    if kernels == "triton" and (_chosen == "triton" or has("kernels", name)):
        return _function("kernels", name)
    if kernels == "numba" and has("compiled", name):
        return _function("compiled", name)
    return reference


def kernels_on(device: torch.device) -> Literal["torch", "triton", "numba"]:
    """What computes operators for tensors on `device`; where an operator has no such function, its torch reference."""
    if _chosen != "auto":
        return _chosen
    if device.type == "cpu":
        return "numba" if installed("numba") else "torch"
    fit = device.type == "cuda" and compiles(triton_version()) and runs_kernels(device)
    return "triton" if fit and build_error(device) is None else "torch"


@contextmanager
def use_kernels(choice: Kernels) -> Iterator[None]:
    """Within this context, `choice` decides what computes operators: auto, torch or triton."""
    global _chosen
    before, _chosen = _chosen, choice
    try:
        yield
    finally:
        _chosen = before


def chosen() -> Kernels:
    """What `use_kernels` was given last."""
    return _chosen


@cache
def installed(package: str) -> bool:
    return find_spec(package) is not None


@cache
def triton_version() -> str | None:
    """The version of Triton, under whichever name it was installed; None where it cannot be imported."""
    try:
        return getattr(import_module("triton"), "__version__", None)
    except ImportError:
        return None


def compiles(version: str | None) -> bool:
    """Whether this version of Triton compiles the kernels."""
    return version is not None and tuple(map(int, version.split(".")[:2])) >= OLDEST_TRITON


@cache
def has(folder: str, name: str) -> bool:
    return find_spec(f"kvbench.ops.{folder}.{name}") is not None


def _fake(name: str, *args: object, **kwargs: object) -> object:
    return getattr(import_module("kvbench.ops.fakes"), name)(*args, **kwargs)


@cache
def _function(folder: str, name: str) -> Callable[..., Any]:
    return cast(Callable[..., Any], getattr(import_module(f"kvbench.ops.{folder}.{name}"), name))


def _device(args: tuple[object, ...], kwargs: dict[str, object]) -> torch.device:
    return next(x.device for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))
