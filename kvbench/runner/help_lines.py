"""Names with a line about each, laid out for the terminal's width, in rich's markup."""

from collections.abc import Iterable, Mapping

from rich.markup import escape

from kvbench.utils.lines import LEAST, columns, wrapped

_JOINED = "\xa0"  # a space at which no line ends


def described(about: Mapping[str, str], width: int = 0) -> list[str]:
    """Each name and its description, in two columns; the first has at least `width` characters.

    A name that leaves the description fewer than LEAST characters has a separate line.
    """
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
