"""Allocation: how many tokens each layer keeps. n prompt tokens, m layers, w always kept at the end."""

from typing import Protocol


class Allocation(Protocol):
    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> list[int]:
        """Tokens per layer, the window included, at most n each; for window < budget < n."""


def largest_remainder(shares: list[float], total: int) -> list[int]:
    """Integers nearest below `shares` (non-negative), topped up where most was cut off until they sum to total.

    Ties go to the smaller index, so a non-increasing sequence stays one.
    """
    # 1e-9 forgives float noise on whole numbers
    floors = [int(share + 1e-9) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (round(floors[i] - shares[i], 9), i))
    for i in by_remainder[: total - sum(floors)]:
        floors[i] += 1
    return floors
