"""The commands that go on from a finished run, to paste."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvbench.configuration import Configuration
from kvbench.configuration.conf import config_dir
from kvbench.runner.arguments import is_word, without_config_dir
from kvbench.utils.console import print_line

SHARES = ("ratio", "budget", "shard", "shards")  # what `kvbench frontier` chooses itself, or takes no part in


def next_commands(cfg: Configuration, folder: Path, commands: Sequence[str], program: Sequence[str]) -> list[str]:
    """A line for each of `commands` that can go on from the run in `folder`; first an experiment's table or figure.

    `program` is the command line of the run, whose overrides are repeated.
    """
    kvbench = ["kvbench"] if Path(program[0]).name == "kvbench" else ["python", "-m", "kvbench"]
    typed_dir, rest = without_config_dir(program[1:])
    # it has the titles and colours of the user's methods; the program of a launcher's job is not ours
    own = ["--config-dir", str(typed_dir)] if typed_dir else config_dir()
    typed = _overrides(rest)
    lines = []
    if cfg.experiment is not None and typed is not None:
        lines.append([cfg.experiment.show if cfg.experiment.show == "table" else "figure", *typed, *own])
    place = f"./{folder}" if str(folder).startswith("-") else str(folder)  # no option of a command
    lines += [[name, place, *own] for name in commands if name != "frontier"]
    if "frontier" in commands and typed is not None and _can_be_searched(cfg, program):
        kept = [override for override in typed if override.partition("=")[0] not in SHARES]
        lines.append(["frontier", *kept, *own])
    return [shlex.join([*kvbench, *line]) for line in lines]


def _overrides(arguments: Sequence[str]) -> list[str] | None:
    """The typed overrides, of a command line without --config-dir; None if it is not a run's."""
    rest = [argument for argument in arguments if argument not in ("-m", "--multirun")]
    return None if any(argument.startswith("-") or is_word(argument) for argument in rest) else rest


def _can_be_searched(cfg: Configuration, program: Sequence[str]) -> bool:
    """Whether `kvbench frontier` takes this configuration: methods by name, and one configuration."""
    methods = [name for name, node in cfg.methods.items() if isinstance(node, Mapping) and name != "full"]
    alone = cfg.experiment is None and cfg.memory == "shared" and not {"-m", "--multirun"} & {*program}
    return alone and bool(methods) and not cfg.method.get("_target_")


def print_next(lines: Sequence[str]) -> None:
    """The commands that go on from here, a line each."""
    for place, line in enumerate(lines):
        print_line(f"{'next' if place == 0 else '':<8} {line}")
