"""Locks that the kernel releases with their process: flock on a file.

On a shared file system flock must reach other nodes. `filelock` has no probe that leaves a lock as it was and needs
no right to write, which `kvbench status` needs for the folders of others: so these functions stay.
"""

import fcntl
import time
from pathlib import Path
from typing import IO


def take(file: IO, patience: float = 0.5) -> None:
    """Lock an open file until it is closed; BlockingIOError when another process keeps it.

    Waits `patience` seconds, in which a probe of `held` may have the lock.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def held(path: Path) -> bool | None:
    """Whether a living process has taken the lock; None where the file may not be read or has no locks (ENOLCK)."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
