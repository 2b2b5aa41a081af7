"""Programs that engines start: the last line of their log, and their end."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any


def last_line(log: Path) -> str:
    """The last line of a log that is not empty; "" without one."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def kill_group(process: "subprocess.Popen[Any]") -> None:
    """End a process that leads a process group, with all processes of the group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
