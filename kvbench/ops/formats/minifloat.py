"""Floating-point numbers of four to eight bits: a sign, an exponent, a fraction.

Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3, and OCP 8-bit Floating Point Specification 1.0.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Minifloat:
    """Numbers of a sign bit, `exponent_bits` and `fraction_bits`; a number's code is its bits.

    special: how many of the highest codes of each sign are NaN or infinity; no number is rounded to these codes.
    """

    exponent_bits: int
    fraction_bits: int
    special: int = 0
    levels: tuple[float, ...] = field(init=False)  # levels of codes 0, 1, …

    def __post_init__(self) -> None:
        positive = [self._magnitude(code) for code in range(2 ** (self.bits - 1))]
        object.__setattr__(self, "levels", (*positive, *(-x for x in positive)))

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    @property
    def largest(self) -> float:
        return self.levels[(1 << self.bits - 1) - 1 - self.special]

    @property
    def top(self) -> int:
        """The exponent of the largest number: emax in the specification."""
        return math.frexp(self.largest)[1] - 1

    def codes(self, x: Tensor) -> Tensor:
        """The codes, int32, of float32 numbers rounded to the nearest, ties to the even code. NaN becomes 0."""
        magnitude = x.abs().clamp(max=self.largest)
        lowest = 1 - self.bias
        exponent = torch.where(magnitude == 0, lowest, torch.frexp(magnitude).exponent - 1).clamp_(min=lowest)
        step = torch.ldexp(torch.ones_like(x), exponent - self.fraction_bits)
        count = (magnitude / step).round().nan_to_num_(0).int()  # at least 2^fraction_bits except for subnormal numbers
        code = (exponent - lowest << self.fraction_bits) + count
        return torch.where(torch.signbit(x), code | 1 << self.bits - 1, code)

    def _magnitude(self, code: int) -> float:
        exponent, fraction = divmod(code, 2**self.fraction_bits)
        hidden = 2**self.fraction_bits if exponent else 0
        return math.ldexp(hidden + fraction, max(exponent, 1) - self.bias - self.fraction_bits)


E2M1 = Minifloat(2, 1)
E2M3 = Minifloat(2, 3)
E3M2 = Minifloat(3, 2)
E4M3 = Minifloat(4, 3, special=1)
E5M2 = Minifloat(5, 2, special=4)
