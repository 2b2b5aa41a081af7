"""Float8 numbers as float32, on a CPU."""

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.compiled.loops import loop

FARTHER = 2.0**120  # float32's exponents begin so far below those of e4m3
NAN = np.int32(0x7FC00000)


def from_float8(x: Tensor) -> Tensor:
    """See `kvbench.ops.float8`."""
    out = torch.empty(x.shape)
    place_bits(x.view(torch.uint8).flatten().numpy(), out.view(torch.int32).flatten().numpy())
    return out.mul_(FARTHER)


@loop
def place_bits(codes: np.ndarray, out: np.ndarray) -> None:
    """Sign, exponent and fraction where float32 has them."""
    for i in range(len(codes)):
        code = np.int32(codes[i])
        number = np.int32((code & np.int32(127)) << np.int32(20))
        if code & np.int32(127) == np.int32(127):
            number = NAN
        out[i] = np.int32((code & np.int32(128)) << np.int32(24)) | number
