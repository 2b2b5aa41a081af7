"""Commands of kvbench, run in this process."""

from kvbench.cli import run_command
from kvbench.run.failures import one_line_errors


def kvbench(name: str, *arguments: object) -> int:
    """The exit code of `kvbench NAME ARGUMENTS`; an error is one line on standard error, as on the command line."""
    try:
        with one_line_errors():
            return run_command(name, *map(str, arguments))
    except SystemExit as stop:
        return stop.code or 0
