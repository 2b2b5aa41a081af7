"""The commands that go on from a finished run, to paste."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvbench.configuration import Configuration
from kvbench.runner.arguments import is_word, without_config_dir
from kvbench.utils.console import print_line

SHARES = ("ratio", "budget", "shard", "shards")  # what `kvbench frontier` chooses itself, or takes no part in


def next_commands(cfg: Configuration, folder: Path, commands: Sequence[str], program: Sequence[str]) -> list[str]:
    """A line for each of `commands` that can go on from the run in `folder`; first an experiment's table or figure.

    `program` is the command line of the run, whose overrides are repeated.
    """
    kvbench = ["kvbench"] if Path(program[0]).name == "kvbench" else ["python", "-m", "kvbench"]
    typed = _overrides(program[1:])
    lines = []
    if cfg.experiment is not None and typed is not None:
        lines.append([cfg.experiment.show if cfg.experiment.show == "table" else "figure", *typed])
    # The user's own files, which are at the end of what was typed, have the titles and colours of their methods.
    own = typed[-2:] if typed and typed[-2:-1] == ["--config-dir"] else []
    lines += [[name, str(folder), *own] for name in commands if name != "frontier"]
    if "frontier" in commands and typed is not None and _can_be_searched(cfg, program):
        kept = [override for override in typed if override.partition("=")[0] not in SHARES]
        lines.append(["frontier", *kept])
    return [shlex.join([*kvbench, *line]) for line in lines]


def _overrides(arguments: Sequence[str]) -> list[str] | None:
    """The typed command line without -m; None if it is not a run's."""
    folder, rest = without_config_dir(arguments)
    rest = [argument for argument in rest if argument not in ("-m", "--multirun")]
    if any(argument.startswith("-") or is_word(argument) for argument in rest):
        return None
    return [*rest, *(["--config-dir", str(folder)] if folder else [])]


def _can_be_searched(cfg: Configuration, program: Sequence[str]) -> bool:
    """Whether `kvbench frontier` takes this configuration: methods by name, and one configuration."""
    methods = [name for name, node in cfg.methods.items() if isinstance(node, Mapping) and name != "full"]
    alone = cfg.experiment is None and cfg.memory == "shared" and not {"-m", "--multirun"} & {*program}
    return alone and bool(methods) and not cfg.method.get("_target_")


def print_next(lines: Sequence[str]) -> None:
    """The commands that go on from here, a line each."""
    for place, line in enumerate(lines):
        print_line(f"{'next' if place == 0 else '':<8} {line}")
