"""Infinite numbers, which codes cannot represent."""

from torch import Tensor


def nan_for_infinity(x: Tensor) -> Tensor:
    """x with NaN instead of infinity: formats preserve NaN, but would turn infinity into an ordinary number."""
    nan = float("nan")
    return x.nan_to_num(nan, nan, nan)  # one kernel
