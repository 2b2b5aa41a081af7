"""The two consoles of the command line. Neither raises an error when its stream cannot be written.

A closed pipe (`| head`), a full disk behind `>` or a locale without the characters costs output, never a run.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# Control characters, which could move the cursor or change the terminal: all of C0 and C1 but tab and line feed.
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


class SafeConsole(Console):
    """A rich console over SafeStream that prints no control characters but rich's own.

    Names and texts from data are printed unchanged: markup is off, so that "[/x]" is text. Where rich always reads
    markup (`status`, a progress bar's columns), pass `Text`.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=segment.text.translate(_CONTROL))

    @property
    def file(self) -> IO[str]:
        return SafeStream(super().file)  # type: ignore[return-value]  # it has all that a stream has, by __getattr__

    @file.setter
    def file(self, file: IO[str]) -> None:
        Console.file.fset(self, file)  # type: ignore[attr-defined]  # mypy takes a property with a setter for a function


class SafeStream:
    """A text stream whose `write` and `flush` never raise.

    Characters outside the stream's encoding become "?". After an error the stream's file descriptor points to
    /dev/null, so that the interpreter can flush it at exit; an error other than a closed pipe is reported once on
    standard error.
    """

    def __init__(self, stream: IO[str]):
        self.stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(self.stream, "encoding", None) or "ascii"
            return self.write(text.encode(encoding, "replace").decode(encoding))
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            return self._give_up(error, text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception, text: str = "") -> int:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.stream.fileno())
            os.close(null)
        except (OSError, ValueError):  # no file descriptor: a buffer, or closed
            return len(text)
        if not isinstance(error, BrokenPipeError) and self.stream is sys.stdout:
            warn(f"standard output cannot be written ({getattr(error, 'strerror', error)}); files are not affected")
        return len(text)


out = SafeConsole(markup=False)
err = SafeConsole(stderr=True, markup=False)


def print_line(line: str) -> None:
    """Print a line on standard output, unchanged and never wrapped."""
    out.print(line, highlight=False, soft_wrap=True)


def warn(line: str) -> None:
    """Print a line on standard error, apart from the command's output."""
    err.print(line, highlight=False, soft_wrap=True)


@cache
def warn_once(line: str) -> None:
    """`warn`, but each line only once in a process."""
    warn(line)


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Show `text` on a terminal or in a notebook's cell within the block; yields a function that replaces it."""
    if err.is_jupyter:  # rich's own display wants ipywidgets
        show = in_cell()
        show(text)
        yield show
        show("")
    else:
        with err.status(Text(text)) as shown:
            yield lambda new: shown.update(Text(new))


def in_cell() -> Callable[[str], None]:
    """Add a line to the output of a notebook's cell; returns the function that replaces its text."""
    from IPython.display import display

    line = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: line.update({"text/plain": text}, raw=True)


@contextmanager
def quietly() -> Iterator[None]:
    """Print nothing to standard output within the block; warnings and progress stay on standard error."""
    before, out.quiet = out.quiet, True
    try:
        yield
    finally:
        out.quiet = before
