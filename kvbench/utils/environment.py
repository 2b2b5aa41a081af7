"""Versions, code and hardware of this process."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from kvbench.utils.cpu import cpu_name
from kvbench.utils.host import cores, memory
from kvbench.utils.release import __version__

PACKAGES = (
    "torch transformers tokenizers datasets accelerate hydra-core omegaconf gguf rouge-score fuzzywuzzy "
    "numpy numba pydantic pandas matplotlib"
).split()
# Variables that choose instructions, threads and precision of torch and Numba on a CPU.
VARIABLES = ("ATEN_", "DNNL_", "KMP_", "MKL_", "NUMBA_", "OMP_", "ONEDNN_")
FOLDER = "NUMBA_CACHE_DIR"  # where Numba keeps what it compiled: kvbench sets it, and no result depends on it


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def environment() -> dict[str, Any]:
    """Versions, code and hardware of this process."""
    return {
        "kvbench": __version__,
        "git": git_commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "variables": variables(),
        "hardware": hardware(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def variables() -> dict[str, str]:
    """The environment's VARIABLES but FOLDER. Bytes that are no UTF-8 become a question mark."""
    given = {name: value for name, value in os.environ.items() if name != FOLDER}
    chosen = sorted((name, value) for name, value in given.items() if name.startswith(VARIABLES))
    return {name: value.encode(errors="replace").decode() for name, value in chosen}


def hardware() -> dict[str, Any]:
    cuda = range(torch.cuda.device_count())
    return {
        "cpu": cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(memory() / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(i) for i in cuda],
        "cuda": torch.version.cuda,
        "system": platform.platform(),
    }


@cache
def git_commit() -> str | None:
    """Commit of the checkout that this code runs from, with `-dirty` for uncommitted changes; None elsewhere.

    It is from the first call in this process: later changes are not in the code that was imported.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "--no-optional-locks", "-C", str(root)]  # a kill then leaves no lock behind
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + ("-dirty" if status.stdout.strip() else "")


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
