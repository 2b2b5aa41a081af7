"""The memory and the cores of the machine that runs kvbench."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CPUS = Path("/sys/devices/system/cpu")


def memory() -> int:
    """All memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory() -> int:
    """Memory that new processes can take without swapping, in bytes: MemAvailable on Linux, elsewhere all of it."""
    lines = MEMINFO.read_text(encoding="utf-8").splitlines() if MEMINFO.is_file() else []
    kib = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
    return memory() if kib is None else kib * 1024


def cores() -> int | None:
    """The number of cores, each with one thread or several; if only threads are known, their number."""
    siblings = {path.read_text(encoding="utf-8") for path in CPUS.glob("cpu[0-9]*/topology/core_cpus_list")}
    return len(siblings) or os.cpu_count()
