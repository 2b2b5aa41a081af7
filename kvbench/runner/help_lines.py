"""Names with a line about each, laid out for the terminal's width, in rich's markup."""

from collections.abc import Iterable, Mapping
from shutil import get_terminal_size
from textwrap import wrap

from rich.markup import escape

_JOINED = "\xa0"  # a space at which no line ends
LEAST = 40  # characters of a line that a description gets; longer names have separate lines


def columns() -> int:
    """Characters of a line: the terminal's, or 120 if there is none."""
    return get_terminal_size((120, 24)).columns


def described(about: Mapping[str, str], width: int = 0) -> list[str]:
    """Each name and its description, in two columns; the first has at least `width` characters."""
    width = min(max(width, 0, *map(len, about)), max(columns() - LEAST - 4, 16))
    lines = []
    for name, text in about.items():
        written = wrapped(text, columns() - width - 4)
        first = f"  {escape(written.pop(0))}" if written and len(name) <= width else ""
        lines.append(f"  [cyan]{escape(f'{name:<{width}}' if first else name)}[/]{first}")
        lines += [f"{'':<{width + 4}}{escape(line)}" for line in written]
    return lines


def listed(names: Iterable[str], before: str = "") -> list[str]:
    """Names in lines, which are not broken at a name's own space."""
    whole = (name.replace(" ", _JOINED) for name in names)
    lines = wrapped(before + ", ".join(whole), min(columns(), 100) - 2)
    return [f"  [cyan]{escape(line.replace(_JOINED, ' '))}[/]" for line in lines]


def sentences(*texts: str) -> list[str]:
    """Texts, each starting a new line."""
    return [escape(line) for text in texts for line in wrapped(text, columns())]


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, or of LEAST where that is more."""
    return wrap(text, max(width, LEAST), break_on_hyphens=False)
