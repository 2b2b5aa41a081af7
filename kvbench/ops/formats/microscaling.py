"""Small floating-point numbers under a shared scale: the MX formats and NVFP4.

Sources: OCP Microscaling Formats (MX) Specification 1.0, sections 5 and 6.3 (blocks of 32 under a power of two);
NVIDIA's description of NVFP4 (blocks of 16 under a scale in e4m3, and all blocks under one float32 scale). A number is
rounded to the nearest level, ties to the even code; numbers beyond the largest level become the largest level.
"""

from functools import lru_cache

import torch
from torch import Tensor

from kvbench.ops.float8 import LARGEST, to_float8
from kvbench.ops.formats.base import BlockFormat, Coded
from kvbench.ops.formats.minifloat import E2M1, E2M3, E3M2, E4M3, E5M2, Minifloat

BIAS = 127  # bias of e8m0: byte e is the scale 2^(e - 127)
NAN = 255  # NaN in e8m0: all numbers of the block are NaN (section 5.1)


class MX(BlockFormat):
    """Blocks of 32 numbers times a power of two, which moves the largest magnitude into the elements' last octave.

    A block of zeros has the smallest scale.
    """

    block = 32
    header = 1

    def __init__(self, name: str, element: Minifloat):
        self.name, self.element, self.bits, self.levels = name, element, element.bits, element.levels

    def rounded(self, blocks: Tensor) -> Coded:
        largest = blocks.abs().amax(dim=-1)  # NaN for a block with NaN
        exponent = torch.frexp(largest).exponent - 1  # floor(log2), 0 for 0
        byte = torch.where(blocks.any(dim=-1), exponent - self.element.top + BIAS, 0).clamp_(0, 2 * BIAS)
        header = byte.where(largest < torch.inf, NAN).to(torch.uint8)[..., None]
        return Coded(header, self.element.codes(torch.ldexp(blocks, BIAS - byte[..., None])))

    def scale(self, header: Tensor) -> Tensor:
        return _scales(header.device)[header[:, 0].int()]


@lru_cache(maxsize=8)
def _scales(device: torch.device) -> Tensor:
    """The scale of each byte of e8m0, float32 [256]."""
    scales = torch.ldexp(torch.ones(NAN + 1), torch.arange(NAN + 1) - BIAS)
    scales[NAN] = float("nan")
    return scales.to(device)


class NVFP4(BlockFormat):
    """Blocks of 16 numbers in e2m1 times a scale in e4m3: the largest magnitude over 6.

    Rows are divided beforehand by a shared float32 scale, so that their largest magnitude is 6 · 448.
    """

    name, block, header = "nvfp4", 16, 1
    bits, levels = E2M1.bits, E2M1.levels
    largest = E2M1.largest * LARGEST

    def rounded(self, blocks: Tensor) -> Coded:
        largest = blocks.abs().amax(dim=-1, keepdim=True)
        header = to_float8(largest / torch.full_like(largest, E2M1.largest))
        scale = header.float()
        steps = torch.where(scale == 0, 0, blocks / scale)
        return Coded(header.view(torch.uint8), E2M1.codes(steps))

    def scale(self, header: Tensor) -> Tensor:
        return header.view(torch.float8_e4m3fn).float()[:, 0]


MICROSCALING = {
    form.name: form
    for form in (
        MX("mxfp8_e4m3", E4M3),
        MX("mxfp8_e5m2", E5M2),
        MX("mxfp6_e2m3", E2M3),
        MX("mxfp6_e3m2", E3M2),
        MX("mxfp4", E2M1),
        NVFP4(),
    )
}
