"""Fixed orthogonal matrices that spread a vector's length over its channels."""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from kvbench.errors import UserError

Rotation = Literal["haar", "hadamard", "plain_hadamard"]


@lru_cache(maxsize=64)
def rotation(kind: Rotation, width: int, seed: int, device: torch.device) -> Tensor:
    """An orthogonal matrix float32 [width, width], the same on every device.

    haar: uniform over all rotations and reflections, the QR decomposition of a Gaussian matrix. hadamard: two rounds of
    random signs and the Walsh-Hadamard transform. plain_hadamard: one round without signs, which maps a constant vector
    to a single channel.
    """
    generator = torch.Generator().manual_seed(seed)
    if kind == "haar":
        q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
        return (q * r.diagonal().sign()).float().to(device)
    if width & (width - 1):
        raise UserError(f"rotation={kind} needs a head dimension that is a power of two, not {width}: use haar")
    hadamard = torch.ones(1, 1, dtype=torch.float64)
    while len(hadamard) < width:
        hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)]) / 2**0.5
    if kind == "hadamard":
        first, second = torch.randint(0, 2, (2, width), generator=generator, dtype=torch.float64) * 2 - 1
        hadamard = hadamard * second @ hadamard * first
    return hadamard.float().to(device)
