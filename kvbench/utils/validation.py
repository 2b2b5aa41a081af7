"""Checks of configuration values that types cannot express."""

from collections.abc import Sequence

from kvbench.errors import UserError, unknown


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a value outside `allowed`."""
    if value not in allowed:
        raise unknown(name, str(value), allowed)


def texts(name: str, value: object) -> list[str]:
    """One text, or a list of some, as a list. Refuses anything else, and an empty list."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or not all(isinstance(one, str) for one in found):
        raise UserError(f"{name}={value!r} must be a name or a list of names")
    if not found:
        raise UserError(f"{name} is empty: a name or a list of names is wanted")
    return list(found)


def is_number(value: object) -> bool:
    """Whether value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def at_least(name: str, value: object, least: int) -> None:
    """Refuse anything but an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}={value!r} must be an integer of at least {least}")
