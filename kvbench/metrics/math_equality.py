"""Mathematical equality of an expression and a text's final answer, by Math-Verify in a separate process.

Simplifying an expression can take forever: a comparison is given up after `SECONDS`.
"""

import atexit
import json
import select
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, cast

from kvbench.errors import UserError

SECONDS = 5.0
STARTING = 120.0  # seconds to import SymPy
PACKAGE = "math_verify"


def check_installed() -> None:
    """Raise UserError where Math-Verify is not installed."""
    if find_spec(PACKAGE) is None:
        raise UserError(
            "MATH's answers are compared by Math-Verify, which is not installed: pip install 'kvbench[math]'"
        )


def equal(expression: str, text: str) -> bool | None:
    """Whether the final answer in `text` equals the LaTeX `expression`; None where it was not decided in time."""
    return comparer().equal(expression, text)


@cache
def comparer() -> "Comparer":
    check_installed()
    return Comparer(Path(__file__).with_name("math_equality_process.py"))


class Comparer:
    """A process that reads lines of JSON, each an expression and a text, and answers true or false to each.

    It is started when it is needed.
    """

    def __init__(self, program: Path, seconds: float = SECONDS):
        self.program, self.seconds = program, seconds
        self.process: subprocess.Popen[str] | None = None
        atexit.register(self.stop)

    def equal(self, expression: str, text: str) -> bool | None:
        process = self.process or self._start()
        requests = cast(IO[str], process.stdin)
        requests.write(json.dumps([expression, text]) + "\n")
        requests.flush()
        line = read_line(process, self.seconds)
        if line is None:
            self.stop()
            return None
        return json.loads(line)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _start(self) -> "subprocess.Popen[str]":
        self.process = subprocess.Popen(
            [sys.executable, str(self.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )
        if read_line(self.process, STARTING) is None:
            self.stop()
            raise UserError(f"Math-Verify cannot be used: {sys.executable} {self.program} does not start")
        return self.process


def read_line(process: "subprocess.Popen[str]", seconds: float) -> str | None:
    """The process's next line; None where none came in time or the process ended."""
    answers = cast(IO[str], process.stdout)
    ready, _, _ = select.select([answers], [], [], seconds)
    return (answers.readline() or None) if ready else None
