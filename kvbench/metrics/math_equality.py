"""Mathematical equality of an expression and a text's final answer, by Math-Verify in a process of its own.

Simplifying an expression can take for ever: a comparison that takes longer than `SECONDS` is given up.
"""

import atexit
import json
import select
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

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
    """Whether the final answer in `text` equals the LaTeX `expression`; None where that was not decided in time."""
    return comparer().equal(expression, text)


@cache
def comparer() -> "Comparer":
    check_installed()
    return Comparer(Path(__file__).with_name("math_equality_process.py"))


class Comparer:
    """A process that answers a line of JSON, an expression and a text, with true or false; started when needed."""

    def __init__(self, program: Path, seconds: float = SECONDS):
        self.program, self.seconds = program, seconds
        self.process: subprocess.Popen[str] | None = None
        atexit.register(self.stop)

    def equal(self, expression: str, text: str) -> bool | None:
        if self.process is None:
            self._start()
        self._write([expression, text])
        line = self._line(self.seconds)
        if line is None:
            self.stop()
            return None
        decided: bool | None = json.loads(line)
        return decided

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(self.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )
        if self._line(STARTING) is None:
            self.stop()
            raise UserError(f"Math-Verify cannot be used: {sys.executable} {self.program} does not start")

    def _write(self, request: list[str]) -> None:
        assert self.process is not None and self.process.stdin is not None, "_start opens the pipe"
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def _line(self, seconds: float) -> str | None:
        """The next line, None where none came in time or the process ended."""
        assert self.process is not None and self.process.stdout is not None, "_start opens the pipe"
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return (self.process.stdout.readline() or None) if ready else None
