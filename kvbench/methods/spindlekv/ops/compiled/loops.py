"""How loops are compiled, and how threads share them."""

import os
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeVar, cast

import torch

from kvbench.utils.files import cache_root

# A folder that can be written to, wherever kvbench is installed; subprocesses read the variable.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_root() / "numba"))

from numba import config, get_num_threads, njit, set_num_threads
from numba.np.ufunc.parallel import threading_layer

config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # type: ignore[attr-defined]  # made at import; which may be past

Function = TypeVar("Function", bound=Callable[..., Any])
PROCESS = os.getpid()
# Numba may only parallelise loops over `prange`.
PRANGE = {"prange": True} | dict.fromkeys(
    ("comprehension", "fusion", "inplace_binop", "numpy", "reduction", "setitem", "stencil"), False
)


def loop(function: Function, **more: object) -> Function:
    """`function` compiled at its first call, and kept on the disk where that is possible.

    Sums may be reordered, so that they use vector instructions; NaN and infinity keep their meaning. On the disk a
    function is known by its name, its code and the numbers that it closes over, and never found again if it closes over
    another compiled one.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}} | more
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError:  # no folder can be written to
        return cast(Function, njit(**options)(function))


def shared(function: Function, **more: object) -> Function:
    """`loop`, in which as many threads as torch uses share the loops over `prange`.

    The function's results must not depend on the number of threads.
    """
    alone = loop(function, **more)
    renamed = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    renamed.__qualname__ = f"{function.__qualname__}_together"  # a name of its own in the cache on the disk
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
    """How many threads Numba has; 1 where several Python threads or a forked process could not use them."""
    if process != PROCESS:
        return 1
    try:
        most = get_num_threads()
    except ValueError:  # Numba has none here
        return 1
    return most if threading_layer() in ("omp", "tbb") else 1  # type: ignore[no-untyped-call]  # Numba has no types here
