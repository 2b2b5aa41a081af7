"""Disks with something wrong, made for a test: full, limited, read-only."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import need


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes; writes are cut short there, then refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def mount(*arguments: str) -> None:
    """Mount; where this machine does not let it, the test needs what is lacking."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    need("mount", done.stderr.strip() if done.returncode else "")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own at `folder`; `resize` gives it room."""
    mount("-t", "tmpfs", "-o", f"size={size}", "none", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, size: str) -> None:
    mount("-o", f"remount,size={size}", str(folder))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """`folder` as on a file system that is mounted read-only, for root too."""
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def nobody() -> Iterator[None]:
    """This process without root's rights to write anywhere."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)
