"""Commands of kvbench, run in this process."""

import signal
import sys
from unittest.mock import patch

from kvbench.__main__ import dispatch, main


def kvbench(name: str, *arguments: object) -> int:
    """The exit code of `kvbench NAME ARGUMENTS`; an error is one line on standard error, as on the command line."""
    try:
        return dispatch([name, *map(str, arguments)]) or 0
    except SystemExit as stop:
        return stop.code or 0


def command_line(*arguments: object) -> int:
    """The exit code of `kvbench ARGUMENTS`."""
    before = signal.getsignal(signal.SIGINT)
    with patch.object(sys, "argv", ["kvbench", *map(str, arguments)]):
        try:
            return main() or 0
        except SystemExit as stop:
            return stop.code or 0
        finally:
            signal.signal(signal.SIGINT, before)
