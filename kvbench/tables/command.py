"""What the commands share that make an experiment's table or figures from records: help, arguments, mistakes."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rich.console import Console

from kvbench.cli import mistakes_in_one_line, options


def command(arguments: Sequence[str], told: str, maker: str) -> None:
    """Print help, `told` and every experiment, or call the module `maker`: its `make(overrides, runs, folder)`.

    The module brings pandas and torch: it is imported only once help was not asked for.
    """
    if {"--help", "-h"} & set(arguments):
        width = max(map(len, options("experiment")))
        lines = [told, *(f"  {name:<{width}}  {about}" for name, about in options("experiment").items())]
        Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
        return
    with mistakes_in_one_line():
        import_module(maker).make(*split(arguments))


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
