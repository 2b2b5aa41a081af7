"""Lloyd and Max's quantiser of a standard normal number: the levels with the smallest mean squared error."""

import math
from functools import cache
from itertools import pairwise


@cache
def normal_levels(bits: int) -> list[float]:
    """The 2^bits levels, ascending. A number is rounded to the nearest level.

    Each level is the mean of the numbers nearest to it (Lloyd 1957, Max 1960): iterated until nothing changes.
    """
    count = 2**bits
    levels = [4 * (place + 0.5) / count - 2 for place in range(count)]
    for _ in range(20_000):
        edges = [-math.inf, *midpoints(levels), math.inf]
        moved = [(_density(a) - _density(b)) / (_below(b) - _below(a)) for a, b in pairwise(edges)]
        change = max(abs(a - b) for a, b in zip(levels, moved, strict=True))
        levels = moved
        if change < 1e-14:
            break
    return [(high - low) / 2 for low, high in zip(reversed(levels), levels, strict=True)]  # symmetric to the last bit


def midpoints(levels: list[float]) -> list[float]:
    """The numbers at which the nearest level changes."""
    return [(a + b) / 2 for a, b in pairwise(levels)]


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
