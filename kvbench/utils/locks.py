"""Locks that go with their process: flock on a file, which on a shared file system must reach other nodes."""

import fcntl
import time
from pathlib import Path
from typing import IO


def take(file: IO, patience: float = 0.5) -> None:
    """Lock an open file until it is closed; BlockingIOError when another process keeps it.

    Patient for a moment, in which `held` may be looking at it.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def held(path: Path) -> bool:
    """Whether a living process has taken the lock."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
