"""The two consoles of the command line, and plain lines on them."""

from rich.console import Console

out = Console()
err = Console(stderr=True)


def print_line(line: str) -> None:
    """A line on standard output: printed as it is, without markup, and never wrapped."""
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def warn(line: str) -> None:
    """A line on standard error, beside what the command prints."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)
