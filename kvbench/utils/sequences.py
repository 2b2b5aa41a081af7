"""Sequences compared item by item."""

from collections.abc import Sequence


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """How many items at the beginning of two sequences are equal: the place of their first difference."""
    differ = (place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))
