"""The machine and Slurm job of a run, and a note of one that ends before it has a folder."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.errors import UserError, on_disk
from kvbench.utils.locks import open_lock, take
from kvbench.utils.signals import Stopped
from kvbench.utils.text import in_one_line

if TYPE_CHECKING:
    from kvbench.configuration import Configuration  # brings pydantic, which --help does without

# In the output folder: notes of jobs under Slurm that do not have a folder of records yet.
STARTING = "starting"


def place() -> dict[str, Any]:
    """Host, process and Slurm job, for a manifest."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "slurm": slurm()}


def slurm() -> dict[str, Any] | None:
    """The Slurm job this process belongs to; None elsewhere."""
    env = os.environ
    if "SLURM_JOB_ID" not in env:
        return None
    return {
        "job": env["SLURM_JOB_ID"],
        "array": env.get("SLURM_ARRAY_JOB_ID"),
        "task": env.get("SLURM_ARRAY_TASK_ID"),
        "restarts": int(restarts) if (restarts := env.get("SLURM_RESTART_COUNT", "")).isdecimal() else 0,
    }


def ended_by(error: BaseException) -> dict[str, Any]:
    """How a run that did not finish ended, for its manifest: a failure has a line about its error."""
    if isinstance(error, Stopped):
        return {"status": f"stopped by {error.signal.name}"}
    status = {"status": f"stopped by {type(error).__name__}"}
    return status | {"error": in_one_line(error)} if isinstance(error, Exception) else status


@contextmanager
def starting(cfg: "Configuration") -> Iterator[None]:
    """Keep a note of a job that ends within the block, unless `begun` was called, when its folder has a manifest.

    Only under Slurm, which reports a job of submitit's as COMPLETED even when it raised.
    """
    if slurm() is None:
        yield
        return
    from kvbench.records.manifest import write_manifest
    from kvbench.utils.environment import now

    path = _note(cfg)
    note = {"status": "running", "started": now(), "config": cfg.plain, **place()}
    with on_disk(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_manifest(path, note)
        lock = open_lock(lock_of(path))
    with lock:
        with on_disk(f"lock {lock_of(path)}"):
            take(lock)
        try:
            yield
        except BaseException as error:
            if path.exists():
                with suppress(UserError):  # the job's own error is the one to report
                    write_manifest(path, note | ended_by(error) | {"ended": now()})
            raise
    begun(cfg)


def begun(cfg: "Configuration") -> None:
    """Remove the note: from here on the run's own manifest has its state."""
    _note(cfg).unlink(missing_ok=True)
    lock_of(_note(cfg)).unlink(missing_ok=True)


def _note(cfg: "Configuration") -> Path:
    """One file for a configuration, so that a job's next attempt replaces the note of the last."""
    text = json.dumps(cfg.plain, sort_keys=True)
    return Path(cfg.output_dir) / STARTING / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def lock_of(note: Path) -> Path:
    return note.with_suffix(".lock")
