"""Runs commands of scripts one after the other, says where it is, and sums up what failed or was left out."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.frame import script_parser

ROOT = Path(__file__).parents[1]
CAPITALS = re.compile(r"\b[A-Z][A-Z_]+\b")  # what stands for a value of this machine


def needed(command: str) -> set[str]:
    return set(CAPITALS.findall(command))


def arguments_of(command: str, values: dict[str, str]) -> list[str]:
    """The words of a command with the values in them, `python` being this one."""
    program, *words = [CAPITALS.sub(lambda name: values[name[0]], word) for word in shlex.split(command)]
    return [sys.executable if program == "python" else program, *words]


def run_all(commands: Sequence[str], values: dict[str, str]) -> int:
    """The exit code: 1 if a command failed. Those that lack a value are left out, and named at the end."""
    verdicts = {}
    for number, command in enumerate(commands, 1):
        if missing := needed(command) - values.keys():
            verdicts[command] = f"left out: needs {', '.join(f'{name}=…' for name in sorted(missing))}"
            continue
        print(f"[{number}/{len(commands)}] {command}", flush=True)
        started = time.monotonic()
        try:
            code: int | OSError = subprocess.run(arguments_of(command, values), cwd=ROOT, check=False).returncode
        except OSError as error:  # no such program: the others go on
            code = error
        verdicts[command] = f"{'failed: ' + str(code) if code else 'done'}, {time.monotonic() - started:.0f} s"
    print("", *(f"{command}: {verdict}" for command, verdict in verdicts.items()), sep="\n")
    return int(any(verdict.startswith("failed") for verdict in verdicts.values()))


def main(doc: str, commands: Sequence[str]) -> int:
    """The command line of a kind: which commands (all of them), and values for their words in capitals."""
    parser = script_parser(doc)
    names = sorted(set().union(*map(needed, commands)))
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", help=f"a value of {', '.join(names) or 'none'}")
    parser.add_argument("--only", metavar="TEXT", help="commands that contain this")
    parser.add_argument("--list", action="store_true", help="print the commands, and run none")
    options = parser.parse_args()
    values = dict(pair.partition("=")[::2] for pair in options.values)
    if unknown := sorted(values.keys() - set(names)):
        parser.error(f"{', '.join(unknown)}: must be of {', '.join(names) or 'none'}")
    chosen = [command for command in commands if (options.only or "") in command]
    if not chosen:
        parser.error(f"--only {options.only}: no command contains it; --list prints all")
    if options.list:
        print(*chosen, sep="\n")
        return 0
    return run_all(chosen, values)
