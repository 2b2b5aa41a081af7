"""The frame of a script: its arguments, and its result with the command and the machine that made it.

kvbench is imported only where a result is told, as steps of `scripts/compare` run in environments without it.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def script_parser(doc: str) -> argparse.ArgumentParser:
    """A parser whose help is a script's docstring, as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def at_least_1(text: str) -> int:
    """The type of an argument that counts what a result is made of: none would replace a file by an empty one."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def arguments(doc: str, **defaults: int) -> argparse.Namespace:
    """Integer options with defaults, and --json FILE for the result."""
    parser = script_parser(doc)
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    return parser.parse_args()


@contextmanager
def until_stopped() -> Iterator[None]:
    """Within the block a signal ends the script, but first what its blocks end: the servers that it has started.

    So does a UserError, as one line.
    """
    from kvbench.errors import UserError
    from kvbench.utils.signals import Stopped, stoppable

    try:
        with stoppable():
            yield
    except Stopped as stopped:
        raise SystemExit(stopped.exit_code) from None
    except UserError as error:
        raise SystemExit(f"{command()}: {error}") from None


def command() -> str:
    """The command of this process, as results/README.md writes it."""
    spec = sys.modules["__main__"].__spec__
    program = ["-m", spec.name] if spec else sys.argv[:1]
    return shlex.join(["python", *program, *sys.argv[1:]])


def provenance() -> dict[str, object]:
    """What made a result: command, time, commit of kvbench, and machine."""
    from kvbench.utils.environment import git_commit, hardware, now

    return {"command": command(), "made": now(), "git": git_commit(), "hardware": hardware()}


def folder_name(machine: str) -> str:
    """The name of a processor or GPU as that of the folder of its results."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def write(result: dict[str, object], path: Path, indent: int = 2) -> None:
    """JSON with a newline at its end; the file is whole or not there."""
    from kvbench.utils.files import write_atomically

    write_atomically(path, json.dumps(result, indent=indent) + "\n")


def tell(result: dict[str, object], path: Path | None) -> None:
    """Print a result with what made it, and write it where asked."""
    result = result | provenance()
    print(json.dumps(result, indent=2))
    if path:
        write(result, path)
