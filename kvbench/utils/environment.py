"""Versions, code and hardware of this process."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil
import torch

from kvbench import __version__

PACKAGES = (
    "torch transformers tokenizers datasets accelerate hydra-core omegaconf gguf rouge-score fuzzywuzzy "
    "numpy pandas matplotlib"
).split()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def environment() -> dict:
    """Versions, code and hardware of this process."""
    return {
        "kvbench": __version__,
        "git": git_commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "hardware": hardware(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def hardware() -> dict:
    cuda = range(torch.cuda.device_count())
    return {
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(i) for i in cuda],
        "cuda": torch.version.cuda,
        "system": platform.platform(),
    }


def git_commit() -> str | None:
    """Commit of the checkout this code runs from, with `-dirty` for uncommitted changes; None elsewhere."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    try:
        git = ["git", "--no-optional-locks", "-C", str(here)]  # a kill then leaves no lock behind
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + ("-dirty" if status.stdout.strip() else "")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    """The CPU's model name. py-cpuinfo finds the same name in 1.6 s (measured, Linux), this in under a millisecond."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
