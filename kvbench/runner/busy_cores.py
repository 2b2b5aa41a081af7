"""A warning where other processes use the cores on which a model will compute with several threads.

Operations that are divided over threads end with the slowest one, so that two processes that each have a thread for
every core hinder each other far beyond their share (`scripts/benchmarks/bench_shared_cores.py`).
"""

import time
from typing import NamedTuple

import psutil
import torch

from kvbench.evaluation.prompts import AnyModel
from kvbench.utils.console import warn

MOST = 0.25  # the share of the cores that others may use without a warning
LEAST_SECONDS = 0.5  # kernels count use in hundredths of a second: a shorter period says too little


class Use(NamedTuple):
    """Seconds of computing on this process's cores, summed over cores, since any moment that two of these share."""

    now: float  # seconds of a clock
    cores: int
    everyone: float
    own: float


def use_of_cores() -> Use | None:
    """The use so far; None where the system does not tell which cores are the process's, as macOS."""
    process = psutil.Process()
    try:
        own_cores = process.cpu_affinity()
        all_cores = psutil.cpu_times(percpu=True)
        busy = [all_cores[core].user + all_cores[core].nice + all_cores[core].system for core in own_cores]
    except (AttributeError, IndexError, OSError, psutil.Error):
        return None
    own = process.cpu_times()
    return Use(time.monotonic(), len(busy), sum(busy), own.user + own.system)


def warn_of_busy_cores(loaded: AnyModel, before: Use | None) -> None:
    """Warn if others have used much of the cores since `before`, and `loaded` computes on them with several threads."""
    if getattr(loaded, "device", None) != "cpu" or before is None or (threads := torch.get_num_threads()) < 2:
        return
    if (after := use_of_cores()) is None or (seconds := after.now - before.now) < LEAST_SECONDS:
        return
    others = (after.everyone - before.everyone) - (after.own - before.own)
    if (share := others / seconds / after.cores) > MOST:
        warn(
            f"other processes use {min(share, 1):.0%} of the {after.cores} cores, and this one has {threads} threads, "
            "which wait for each other: on shared cores, every process is faster with OMP_NUM_THREADS=1"
        )
