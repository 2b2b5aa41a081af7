"""What the commands share that make an experiment's table or figures from records: help, arguments, mistakes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from kvbench.cli import mistakes_in_one_line, options

Make = Callable[[list[str], list[str], str | None], object]


def command(arguments: Sequence[str], told: str, make: Make) -> None:
    """Print help, `told` and every experiment, or make what the arguments name: `make(overrides, runs, folder)`."""
    if {"--help", "-h"} & set(arguments):
        print(told)
        width = max(map(len, options("experiment")))
        for name, about in options("experiment").items():
            print(f"  {name:<{width}}  {about}")
        return
    with mistakes_in_one_line():
        make(*split(arguments))


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
