"""Values that a stranger wrote: while objects are made of them, the readers of files and the look-up of functions
refuse what the values name.

`kvbench verify` refuses each field that it knows as a place or a function before. A field that nobody has thought of
reaches nothing because of this.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from kvbench.errors import UserError

_allowed: ContextVar[tuple[Path, ...] | None] = ContextVar(
    "files and folders that may be read; None: all", default=None
)


@contextmanager
def strangers_values(places: Iterable[str | Path]) -> Iterator[None]:
    """In the block only `places` and what is below them is read, and no function is imported by its name."""
    before = _allowed.set(tuple(Path(place).resolve() for place in places))
    try:
        yield
    finally:
        _allowed.reset(before)


def from_stranger() -> bool:
    """Whether a stranger's values are at work."""
    return _allowed.get() is not None


def check_reading(path: str | Path) -> None:
    """Raise UserError for a file that a stranger's values must not reach."""
    allowed = _allowed.get()
    if allowed is not None and not any(Path(path).resolve().is_relative_to(place) for place in allowed):
        raise UserError(f"{str(path)!r} is no file that others may name: the command line gives its place")
