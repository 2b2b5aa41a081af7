"""A note of a job under Slurm that ends before its run has a folder of records."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import UserError, on_disk
from kvbench.runner.job_state import ended_by, place, slurm
from kvbench.utils.locks import holder, open_lock, take

if TYPE_CHECKING:
    from kvbench.configuration import Configuration  # brings pydantic, which --help does without

# In the output folder: notes of jobs under Slurm that do not have a folder of records yet. Hidden, so that the shell's
# runs/* names runs alone.
STARTING = ".starting"


@contextmanager
def starting(cfg: "Configuration") -> Iterator[None]:
    """Keep a note of a job that ends within the block, unless `begun` was called: then its folder has a manifest.

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
        lock = open_lock(lock_of(path))
    with lock:
        with on_disk(f"lock {lock_of(path)}"):
            try:
                take(lock)
            except BlockingIOError:
                by = f"{holder(lock)} holds {lock.name}"
                raise UserError(f"another kvbench is starting the same job: wait for it or stop it ({by})") from None
        with on_disk(f"write {path}"):
            write_manifest(path, note)
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
