"""How loops are compiled, and how they see tensors."""

import os
from collections.abc import Callable

import numpy as np
from torch import Tensor

from kvbench.utils.files import cache_root

# Read when Numba is first imported: a folder that can be written to, wherever kvbench is installed.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_root() / "numba"))

from numba import njit


def loop(function: Callable) -> Callable:
    """`function` compiled at its first call, and kept on the disk where that is possible.

    Sums may be reordered, so that they use vector instructions; NaN and infinity keep their meaning.
    """
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written to
        return njit(**options)(function)


def whole(x: Tensor) -> np.ndarray:
    """x [heads, rows, width] and the room behind the rows of each head, if it is a view of such a buffer: a contiguous
    array [heads, at least rows, width], over which loops use vector instructions."""
    apart, row, _ = x.stride()
    rows = apart // row if row else 0
    size = x.shape[0] * apart
    fits = x.stride(2) == 1 and row == x.shape[2] and rows * row == apart
    if not fits or (x.storage_offset() + size) * x.element_size() > x.untyped_storage().nbytes():
        return x.contiguous().numpy()
    return x.as_strided((x.shape[0], rows, row), x.stride()).numpy()


@loop
def add_rows(weights, rows, out):
    """Add the sum of the first rows [at least n, width], times weights [n], to out [width]."""
    for row in range(len(weights)):
        for c in range(len(out)):
            out[c] += weights[row] * rows[row, c]


@loop
def row_products(query, rows, out):
    """Write the products of query [width] and rows [n, width] to out [at least n]."""
    for row in range(len(rows)):
        total = np.float32(0)
        for c in range(len(query)):
            total += query[c] * rows[row, c]
        out[row] = total
