"""Numbers among values of any type."""

from typing import TypeGuard


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is an int or a float; true and false, which Python counts among the integers, are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
