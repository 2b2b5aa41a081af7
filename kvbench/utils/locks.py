"""Locks that the kernel releases with their process: flock on a file.

On a shared file system flock must reach other nodes. `filelock` is not used because it cannot probe a lock without
taking it and without the right to write, as `kvbench status` does in other people's folders.
"""

import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from kvbench.utils.regular_files import NotRegular, open_regular

PAUSE = 0.05  # seconds between two attempts
NOTICE = 5.0  # seconds after which a wait is reported


def open_lock(path: Path) -> IO[str]:
    """The file of a lock, open for `take` and made if missing. Raises OSError, also for a pipe or a device."""
    return open(path, "r+", encoding="utf-8", opener=_opened)


def _opened(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(path)
    return descriptor


def take(file: IO[str], patience: float = 0.5) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError if another process keeps it.

    Waits `patience` seconds, since a probe by `held` may briefly have the lock.
    """
    deadline = time.monotonic() + patience
    while not _taken(file):
        if time.monotonic() > deadline:
            raise BlockingIOError
        time.sleep(PAUSE)


def wait_for(file: IO[str], tell: Callable[[str], object], notice: float = NOTICE) -> None:
    """Lock an open file until it is closed, however long another process keeps it.

    After `notice` seconds, and each time the wait has doubled, `tell` gets a line that names the holder.
    """
    started = time.monotonic()
    while not _taken(file):
        if time.monotonic() - started >= notice:
            notice *= 2
            tell(f"waiting for {file.name}, which {holder(file)} holds")
        time.sleep(PAUSE)


def holder(file: IO[str]) -> str:
    """The process that took a lock last, as it wrote into the file."""
    with suppress(OSError, ValueError):
        file.seek(0)
        if written := file.read(200).strip():
            return written
    return "another process"


def _taken(file: IO[str]) -> bool:
    """Lock a file, and write this process into it; False if another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    with suppress(OSError):  # a full disk; the lock holds nevertheless
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
    return True


def held(path: Path) -> bool | None:
    """Whether a living process has taken the lock; None if the file may not be read or has no locks (ENOLCK)."""
    try:
        with open_regular(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
