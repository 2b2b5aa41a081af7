"""The manifest of a run: exactly what produced its records."""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import psutil
import torch

from kvbench import __version__
from kvbench.embedded import cache_root
from kvbench.errors import UserError, on_disk
from kvbench.results.atomic import replacing

PACKAGES = (
    "torch transformers tokenizers datasets accelerate hydra-core omegaconf gguf rouge-score fuzzywuzzy "
    "numpy pandas matplotlib"
).split()


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


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


def model_identity(source: str, revision: str) -> dict:
    """What tells a model's weights apart: the hub's revision, or a hash of a folder's files."""
    if Path(source).is_dir():
        files = sorted(p for p in Path(source).iterdir() if p.suffix in {".safetensors", ".json", ".jinja"})
        return {"source": Path(source).name, "files": {p.name: file_hash(p) for p in files}}
    return {"source": source, "revision": revision}


def file_hash(path: Path) -> str:
    """SHA-256 of a file; remembered by path, size and time of change, for weights take long to read."""
    stat = path.stat()
    mark = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    memory = cache_root() / "hashes" / hashlib.sha256(mark.encode()).hexdigest()
    if memory.is_file() and re.fullmatch("[0-9a-f]{64}", known := memory.read_text(errors="replace")):
        return known
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            sha256.update(block)
    value = sha256.hexdigest()
    with suppress(OSError):  # it only saves time
        memory.parent.mkdir(parents=True, exist_ok=True)
        with replacing(memory) as work:
            work.write_text(value)
    return value


def write_manifest(path: Path, manifest: dict) -> None:
    """Write a manifest, in the place of an earlier one. Raises UserError where the disk does not take it."""
    with on_disk(f"write {path}"):
        path.parent.mkdir(exist_ok=True)  # a run's folder that was removed does not come back for this
        with replacing(path) as work:
            work.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def end_manifest(path: Path, manifest: dict) -> None:
    """`write_manifest` once a run has ended, which does not hide the error that ended it."""
    try:
        write_manifest(path, manifest)
    except UserError:
        if manifest["status"] == "finished":
            raise


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
