"""What the commands `table` and `figure` share: their help and their arguments."""

from collections.abc import Sequence
from pathlib import Path

from kvbench.config import options
from kvbench.utils.console import print_line


def printed_help(arguments: Sequence[str], text: str) -> bool:
    """Whether help was asked for; if so `text` and every experiment are printed."""
    if not {"--help", "-h"} & set(arguments):
        return False
    width = max(map(len, options("experiment")))
    lines = [text, *(f"  {name:<{width}}  {about}" for name, about in options("experiment").items())]
    print_line("\n".join(lines))
    return True


def split(arguments: Sequence[str]) -> tuple[list[str], list[str], str | None]:
    """The overrides of a configuration, the folders after runs= and the one after out=."""
    overrides, runs, out = [], [], None
    waiting = False
    for argument in arguments:
        key, _, value = argument.partition("=")
        if waiting:
            overrides.append(f"hydra.searchpath=[file://{Path(argument).absolute()}]")
            waiting = False
        elif key == "runs":
            runs += [part.strip() for part in value.strip("[]").split(",") if part.strip()]
        elif key == "out":
            out = value
        elif key in ("--config-dir", "-cd"):
            waiting = not value
            overrides += [f"hydra.searchpath=[file://{Path(value).absolute()}]"] * bool(value)
        elif argument not in ("-m", "--multirun"):
            overrides.append(argument)
    return overrides, runs, out
