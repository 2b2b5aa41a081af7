"""The memory and the cores of the machine that runs kvbench."""

import os

import psutil


def memory() -> int:
    """All memory, in bytes."""
    return int(psutil.virtual_memory().total)


def free_memory() -> int:
    """Memory that new processes can take without swapping, in bytes."""
    return int(psutil.virtual_memory().available)


def cores() -> int | None:
    """The number of cores, each with one thread or several; if only threads are known, their number."""
    return psutil.cpu_count(logical=False) or os.cpu_count()
