"""How loops are compiled, how threads share them, and how they see tensors."""

import math
import os
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from kvbench.utils.files import cache_root

# A folder that can be written to, wherever kvbench is installed; subprocesses read the variable.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_root() / "numba"))

from numba import config, get_num_threads, njit, set_num_threads
from numba.np.ufunc.parallel import threading_layer

config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # type: ignore[attr-defined]  # made at import; which may be past

Function = TypeVar("Function", bound=Callable[..., Any])
PROCESS = os.getpid()
# Of Numba's automatic parallelism, the loops that say so alone.
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

    What a function computes must not depend on the number of threads.
    """
    alone = loop(function, **more)
    renamed = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    renamed.__qualname__ = f"{function.__qualname__}_together"  # another one on the disk
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


def whole(x: Tensor) -> np.ndarray:
    """x [heads, rows, width] and the room behind the rows of each head, if it is a view of such a buffer: a contiguous
    array [heads, at least rows, width], over which loops use vector instructions."""
    apart, row, _ = x.stride()
    rows = apart // row if row else 0
    size = x.shape[0] * apart
    fits = x.stride(2) == 1 and row == x.shape[2] and rows * row == apart
    if not fits or (x.storage_offset() + size) * x.element_size() > x.untyped_storage().nbytes():
        copied: np.ndarray = x.contiguous().numpy()
        return copied
    room: np.ndarray = x.as_strided((x.shape[0], rows, row), x.stride()).numpy()
    return room


@loop
def add_rows(weights: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Add the sum of the first rows [at least n, width], times weights [n], to out [width]."""
    for row in range(len(weights)):
        for c in range(len(out)):
            out[c] += weights[row] * rows[row, c]


@loop
def row_products(query: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Write the products of query [width] and rows [n, width] to out [at least n]."""
    for row in range(len(rows)):
        total = np.float32(0)
        for c in range(len(query)):
            total += query[c] * rows[row, c]
        out[row] = total


# Coefficients of 2^f = exp(f ln 2) for |f| <= 1/2: what is left out is less than 1e-8 of it.
POWERS = tuple(np.float32(math.log(2) ** n / math.factorial(n)) for n in range(8))
PER_POWER = np.float32(1 / math.log(2))


@loop
def softmax(x: np.ndarray, scaling: np.float32) -> None:
    """Turn logits x [n] into the weights of their softmax, times `scaling` before; NaN makes all of them NaN.

    exp is 2^whole · 2^rest, a polynomial of the rest, so that it uses vector instructions.
    """
    c0, c1, c2, c3, c4, c5, c6, c7 = POWERS
    n = len(x)
    exponents = np.empty(n, np.int32)
    largest = np.float32(-np.inf)
    for i in range(n):
        largest = max(largest, x[i])
    factor = scaling * PER_POWER
    for i in range(n):
        power = (x[i] - largest) * factor
        power = np.float32(-127) if power < np.float32(-127) else power  # 0 from there on
        whole = np.floor(power + np.float32(0.5))
        rest = power - whole
        exponents[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        x[i] = c0 + rest * (c1 + rest * (c2 + rest * (c3 + rest * (c4 + rest * (c5 + rest * (c6 + rest * c7))))))
    wholes = exponents.view(np.float32)
    total = np.float32(0)
    for i in range(n):
        x[i] *= wholes[i]
        total += x[i]
    for i in range(n):
        x[i] /= total
