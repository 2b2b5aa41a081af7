"""The place of a run's process and how the run ended, for its manifest."""

import os
import socket
from typing import Any

from kvbench.utils.own_code import line_about
from kvbench.utils.signals import Stopped


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
    return status | {"error": line_about(error)} if isinstance(error, Exception) else status
