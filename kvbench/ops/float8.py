"""Float8 numbers of the format e4m3: 3 mantissa bits, at most 448, the smallest step 2⁻⁹."""

from functools import cache

import torch
from torch import Tensor

from kvbench.ops.small_codes import look_up

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0


def to_float8(x: Tensor) -> Tensor:
    """x rounded to e4m3. Numbers beyond ±448 become ±448; in some versions of torch a plain cast makes them NaN."""
    return x.clamp(-LARGEST, LARGEST).to(E4M3)


def from_float8(x: Tensor) -> Tensor:
    """Contiguous e4m3 numbers, an even count in the last dimension, as float32.

    On a CPU pairs are looked up in a table, which is several times as fast as torch's cast on a CPU.
    """
    return look_up(_pairs(), x.view(torch.uint16).int()) if x.device.type == "cpu" else x.float()


@cache
def _pairs() -> Tensor:
    """The numbers of every pair of bytes, the lower byte first: float32 [65536, 2]."""
    numbers = torch.arange(256, dtype=torch.uint8).view(E4M3).float()
    return torch.stack([numbers.repeat(256), numbers.repeat_interleave(256)], dim=1)
