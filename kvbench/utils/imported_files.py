"""Files of functions and classes, as they were imported: Python goes on with the old code of a file that is edited."""

import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from kvbench.errors import UserError
from kvbench.utils.hashing import file_hash


class _Seen(NamedTuple):
    """What was imported when its file was first read, and that file."""

    objects: tuple[object, ...]  # the function or class, and its code
    sha256: str


_SEEN: dict[tuple[str, str], _Seen] = {}  # by module and name


def imported_hash(made: Callable[..., Any]) -> str:
    """SHA-256 of the file that defines a function or class.

    Raises UserError if the file is known to have changed since it was imported, or if there is none. What was changed
    before the first call is known where the code of the function itself, or of the class's methods, is another.
    """
    made = inspect.unwrap(made)
    try:
        file = inspect.getfile(made)
        sha256 = file_hash(Path(file))
    except (TypeError, OSError) as error:
        raise UserError("it is in no file: write it as a function to a file that Python imports") from error
    key, codes = (made.__module__, made.__qualname__), tuple(_codes(made, file))
    seen = _SEEN.get(key)
    # code that is equal may use a helper that is not: only other objects say that the file was imported again
    if seen and [*map(id, seen.objects)] == [*map(id, (made, *codes))]:
        changed = seen.sha256 != sha256
    else:
        changed = not _has(Path(file), made.__module__, codes)
    if changed:
        raise UserError(f"{file} changed after it was imported: restart Python, or importlib.reload({made.__module__})")
    _SEEN[key] = _Seen((made, *codes), sha256)
    return sha256


def _codes(made: Callable[..., Any], file: str) -> Iterator[CodeType]:
    """The code of a function, or of a class's own methods, without those that decorators made or took elsewhere."""
    for value in vars(made).values() if inspect.isclass(made) else [made]:
        code = getattr(inspect.unwrap(getattr(value, "__func__", value)), "__code__", None)
        if isinstance(code, CodeType) and code.co_filename == file:
            yield code


def _has(file: Path, module: str, codes: tuple[CodeType, ...]) -> bool:
    """Whether the file still compiles to these codes; true where its loader compiles something else than its text."""
    loader = getattr(sys.modules.get(module), "__loader__", None)
    if type(loader) is not SourceFileLoader:
        return True
    try:
        whole = loader.source_to_code(file.read_bytes(), str(file))
    except (SyntaxError, ValueError):
        return False
    return {*codes} <= {*_nested(whole)}


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
