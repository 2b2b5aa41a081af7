"""Tasks that Slurm's launcher waits for: which have ended, and those that end without a result."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from submitit import SlurmJob
from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit.slurm.slurm import SlurmInfoWatcher

from kvbench.runner.failures import JobFailed
from kvbench.utils.console import err


class Watcher(SlurmInfoWatcher):
    """A task has ended once Slurm's queue lacks it.

    What accounting calls suspended, preempted or NODE_FAIL may go on, and of a task that was cancelled before it began
    it knows nothing.
    """

    queued: set[str] | None = None  # tasks that the queue has; None: it did not answer

    def update(self) -> None:
        self.queued = in_queue()  # first: a task that is gone by now has the state of its end in what follows
        super().update()

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        known = self.get_state(job_id, mode) != "UNKNOWN"  # a job of another cluster is in no queue here
        return known and self.queued is not None and job_id not in self.queued


def in_queue() -> set[str] | None:
    """This user's jobs, and tasks of arrays, that Slurm has not ended; None where it does not answer."""
    command = ["squeue", "--noheader", "--all", "--array", "--format=%i", f"--user={os.getuid()}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}  # a user's own filters
    try:
        return {*subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()}
    except subprocess.CalledProcessError:
        return None


@contextmanager
def waiting_for_all() -> Iterator[None]:
    """Within the block a launcher waits for every task, also after one that was killed: it is a job that failed."""
    ours = {"watcher": Watcher(delay_s=SlurmJob.watcher._delay_s), "results": results}
    before = {name: getattr(SlurmJob, name) for name in ours}
    try:
        _set(ours)
        yield
    finally:
        _set(before)


def _set(attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(SlurmJob, name, value)


def results(job: "SlurmJob[Any]") -> list[Any]:
    """What `SlurmJob.results` returns, with an error in place of a result that a task did not leave."""
    try:
        return super(SlurmJob, job).results()
    except UncompletedJobError as error:
        if isinstance(error, FailedJobError):
            how = f"failed: {last_line(str(error))}"
        else:
            # of a task that was cancelled before it began accounting keeps what it knew last
            how = "ended without a result" + ("" if job.state in ("PENDING", "RUNNING") else f" ({job.state})")
        failed = JobFailed(f"Slurm job {job.job_id} {how}; its logs are in {job.paths.folder}")
        err.print(str(failed), highlight=False, soft_wrap=True)
        return [JobReturn(_return_value=failed, status=JobStatus.COMPLETED)]


def last_line(message: str) -> str:
    """The last line of the traceback, which submitit's message has between lines of dashes; else of the message."""
    parts = message.split("-" * 22)
    trace = parts[1] if len(parts) > 2 else message
    return trace.strip().splitlines()[-1]
