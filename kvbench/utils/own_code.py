"""The origin of an error: the line of the user's or a plug-in's code that raised it, or the library."""

import inspect
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from kvbench.errors import UserError
from kvbench.utils.plugins import Plugin, plugin_with
from kvbench.utils.text import in_one_line

_PACKAGE = Path(__file__).parents[1]
_INSTALLED = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_FOLDERS = [_PACKAGE, *map(Path, (sys.prefix, sys.base_prefix, *_INSTALLED))]


def own_line(error: BaseException) -> str | None:
    """The innermost line of the user's method, metric or benchmark: "KeyError in my_metric.py, line 3: 'x'".

    For a plug-in, the distribution follows the file. None if the error passed through no such code. A file that Python
    cannot parse is such code, though none of it ran.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    if isinstance(error, SyntaxError) and error.filename and _is_own(error.filename):
        frames.append(traceback.FrameSummary(error.filename, error.lineno, ""))
    return described(error, frames[-1]) if frames else None


def line_about(error: BaseException) -> str:
    """A line about an error: with the file and line of the user's or a plug-in's code where that raised it.

    The message of a UserError is a whole line by itself.
    """
    place = None if isinstance(error, UserError) else own_line(error)
    return place or in_one_line(error)


def described(error: BaseException, frame: traceback.FrameSummary) -> str:
    plugin = _plugin_with(frame.filename)
    place = f"{Path(frame.filename).name} of {plugin}" if plugin else Path(frame.filename).name
    return f"{type(error).__name__} in {place}, line {frame.lineno}: {in_one_line(error)}"


def caller_of(file: str) -> str:
    """The function, such as Class.method, that called into this file, for an error about its call."""
    frame = _caller_of(file)
    return "" if frame is None else frame.f_code.co_qualname.partition(".<locals>")[0]


def is_called_by_own(file: str) -> bool:
    """Whether the user's or a plug-in's code called into this file."""
    frame = _caller_of(file)
    return frame is not None and _is_own(frame.f_code.co_filename)


def is_own_function(function: object) -> bool:
    """Whether a function or method is of the user's or a plug-in's code."""
    code = getattr(function, "__code__", None)
    return code is not None and _is_own(code.co_filename)


def _caller_of(file: str) -> FrameType | None:
    frame = inspect.currentframe()
    inner = (Path(__file__), Path(file), Path("<string>"))  # a dataclass's __init__ is in no file
    while frame is not None and frame.f_back is not None and Path(frame.f_code.co_filename) in inner:
        frame = frame.f_back
    return frame


def raised_in(error: BaseException) -> str:
    """The package whose code raised an error, apart from Python's own."""
    names = (
        str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    return next((name for name in reversed([*names]) if name not in sys.stdlib_module_names), "")


def is_users(filename: str) -> bool:
    """Whether a file is the user's: not kvbench's, a plug-in's or an installed package's."""
    return _is_outside(filename) and _plugin_with(filename) is None


def _is_own(filename: str) -> bool:
    return _is_outside(filename) or _plugin_with(filename) is not None


def _is_outside(filename: str) -> bool:
    path = Path(filename)
    return path.is_absolute() and not any(path.is_relative_to(folder) for folder in _FOLDERS)


def _plugin_with(filename: str) -> Plugin | None:
    try:
        return plugin_with(filename)
    except UserError:  # a broken plug-in is reported where plug-ins are asked for
        return None
