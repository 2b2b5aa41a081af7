"""Checks of configuration values that types cannot express."""

from pathlib import Path

from kvbench.errors import UserError, unknown

# Keys of benchmarks that say where this machine has their data, which are identified by their hash.
PLACES = frozenset(
    "data_dir haystack_dir needle_file essays_dir squad hotpotqa english_words prompts_file path".split()
)


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a value outside `allowed`."""
    if value not in allowed:
        raise unknown(name, str(value), allowed)


def is_number(value: object) -> bool:
    """Whether value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def at_least(name: str, value: object, least: int) -> None:
    """Refuse anything but an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}={value!r} must be an integer of at least {least}")


def model_folder(path: str) -> str:
    """The path of a folder in the hub's layout. Raises ValueError, which says what is right, for another one."""
    if not (Path(path) / "config.json").is_file():
        raise ValueError("a folder with a config.json")
    return path
