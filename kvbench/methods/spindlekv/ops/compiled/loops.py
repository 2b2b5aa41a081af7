"""Compilation of loops by Numba, and the threads that share them."""

import os
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeVar, cast

import torch

from kvbench.utils.files import cache_root

# A writable folder, wherever kvbench is installed; subprocesses read the variable.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_root() / "numba"))

from numba import config, get_num_threads, njit, set_num_threads
from numba.np.ufunc.parallel import threading_layer

config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # type: ignore[attr-defined]  # numba sets it at import, which may have happened already

Function = TypeVar("Function", bound=Callable[..., Any])
PROCESS = os.getpid()
# Numba may only parallelise loops over `prange`.
PRANGE = {"prange": True} | dict.fromkeys(
    ("comprehension", "fusion", "inplace_binop", "numpy", "reduction", "setitem", "stencil"), False
)


def loop(function: Function, **more: object) -> Function:
    """`function` compiled at its first call, and cached on disk if possible.

    Sums may be reordered to use vector instructions; NaN and infinity keep their meaning. The disk cache identifies a
    function by its name, its code and the numbers in its closure; it never finds a function whose closure has another
    compiled function.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}} | more
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError:  # no folder can be written to
        return cast(Function, njit(**options)(function))


def shared(function: Function, **more: object) -> Function:
    """`loop`, with loops over `prange` shared by as many threads as torch uses.

    The function's results must not depend on the number of threads.
    """
    alone = loop(function, **more)
    renamed = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    renamed.__qualname__ = f"{function.__qualname__}_together"  # a separate name in the disk cache
    together = loop(renamed, parallel=PRANGE, **more)

    @wraps(function)
    def run(*args: object) -> object:
        threads = torch.get_num_threads()
        if threads == 1 or (most := most_threads(os.getpid())) == 1:
            return alone(*args)
        set_num_threads(min(threads, most))
        return together(*args)

    return cast(Function, run)


@cache
def most_threads(process: int) -> int:
    """How many threads Numba has; 1 if several Python threads or a forked process cannot use them safely."""
    if process != PROCESS:
        return 1
    try:
        most = get_num_threads()
    except ValueError:  # Numba has no threading layer on this machine
        return 1
    return most if threading_layer() in ("omp", "tbb") else 1  # type: ignore[no-untyped-call]  # Numba has no types for it
