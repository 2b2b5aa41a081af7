"""Sweeps on Slurm, with fakes of its programs: what is asked of them, and which tasks are waited for."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
import submitit

from kvbench.runner.slurm_jobs import last_line
from tests.runner.test_sweep import small


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Programs of Slurm in place of a cluster's: lines of bash by name. Ctrl-C interrupts, as in a terminal."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(**lines: str) -> None:
        for name, text in {"srun": "", "squeue": "", **lines}.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield write
    signal.signal(signal.SIGINT, before)


ON_SLURM = ["hydra/launcher=slurm", "shards=2", "shard=0,1"]
STATES = "echo 'JobID|State|NodeList'; echo '7_0|{}|n1'; echo '7_1|{}|n2'"
LEFT = "kill -INT $PPID"  # Ctrl-C for what waits


@pytest.mark.parametrize(
    "queue, states",
    [
        ("echo 7_0; echo 7_1", ("SUSPENDED", "NODE_FAIL")),
        ('[ -n "$SQUEUE_STATES" ] || echo 7_0 7_1', ("PREEMPTED", "NODE_FAIL")),
        ("echo Unable to contact slurm controller >&2; exit 1", ("FAILED", "FAILED")),
    ],
    ids=["suspended, its node failed", "with filters of the user's own", "no answer"],
)
def test_tasks_that_slurm_has_in_its_queue_are_waited_for(
    queue, states, sweep, programs, tiny_folder, tmp_path, monkeypatch
):
    """What accounting calls suspended, or its node failed, was said to have ended without output."""
    monkeypatch.setattr(submitit.SlurmJob, "_results_timeout_s", 0)
    monkeypatch.setenv("SQUEUE_STATES", "R")
    asked = f"[ -e {tmp_path}/asked ] && {LEFT}; touch {tmp_path}/asked; {STATES.format(*states)}"
    programs(sbatch="echo Submitted batch job 7", squeue=queue, sacct=asked)
    code, _, err = sweep(*ON_SLURM, *small(tiny_folder))
    assert code == 130 and "stopped waiting" in err[-1]


@pytest.mark.parametrize(
    "states, told",
    [
        (("OUT_OF_MEMORY", "PREEMPTED"), (" (OUT_OF_MEMORY)", " (PREEMPTED)")),
        (("CANCELLED by 0", "PENDING"), (" (CANCELLED by 0)", "")),
    ],
    ids=["killed, cancelled by preemption", "cancelled, and before it began"],
)
def test_every_task_that_left_no_result_is_told_and_ends_no_wait_for_others(
    states, told, sweep, programs, tiny_folder, tmp_path, monkeypatch
):
    """The first one ended the wait, and what preemption or a user cancelled was waited for without end."""
    monkeypatch.setattr(submitit.SlurmJob, "_results_timeout_s", 0)
    asked = f"[ -e {tmp_path}/asked ] && {LEFT}; touch {tmp_path}/asked; {STATES.format(*states)}"
    programs(sbatch="echo Submitted batch job 7", sacct=asked)
    code, _, err = sweep(*ON_SLURM, *small(tiny_folder))
    logs = tmp_path / "runs" / "slurm"
    lines = [f"Slurm job 7_{i} ended without a result{told[i]}; its logs are in {logs}/7_{i}" for i in (0, 1)]
    assert code == 1 and err[-3:] == [*lines, f"kvbench: {lines[0]}"]


def test_an_option_of_sbatch_without_a_key_is_added_with_a_plus(sweep, programs, tiny_folder, tmp_path):
    programs(sbatch=f"cp $1 {tmp_path}/script; exit 1")
    code, _, err = sweep(*ON_SLURM, "hydra.launcher.additional_parameters.mail-user=me", *small(tiny_folder))
    assert (code, len(err)) == (2, 1)
    added = "+hydra.launcher.additional_parameters.mail-user="
    assert f"Every option of sbatch can be added with a plus sign: {added}…" in err[0]
    assert sweep(*ON_SLURM, f"{added}me", *small(tiny_folder))[0] == 1
    assert "#SBATCH --mail-user=me\n" in (tmp_path / "script").read_text()


def test_leaving_the_launcher_tells_that_its_jobs_go_on(sweep, programs, tiny_folder):
    """The same command was said to continue: it would have submitted all jobs again, beside the first ones."""
    programs(sbatch="echo Submitted batch job 7", sacct="kill -INT $PPID")
    code, _, err = sweep(*ON_SLURM, *small(tiny_folder))
    assert code == 130
    assert err[-1].startswith("kvbench: stopped waiting; jobs that Slurm has taken go on: kvbench status runs shows")


def test_what_is_submitted_from_inside_a_job_does_not_take_its_variables_for_its_own(
    sweep, programs, tiny_folder, tmp_path, monkeypatch
):
    programs(sbatch=f"env > {tmp_path}/env; echo Submitted batch job 7", sacct="kill -INT $PPID")
    inside = {"SLURM_JOB_ID": "5", "SLURM_ARRAY_JOB_ID": "3", "SLURM_MEM_PER_NODE": "600", "SLURM_RESTART_COUNT": "1"}
    kept = {"SLURM_CONF": "/slurm.conf", "SBATCH_ACCOUNT": "mine"}
    for name, value in (inside | kept).items():
        monkeypatch.setenv(name, value)
    sweep(*ON_SLURM, *small(tiny_folder))
    given = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if line.startswith("S"))
    assert not inside.keys() & given.keys()
    assert kept.items() <= given.items()
    assert inside.items() <= os.environ.items()


def test_a_warning_as_early_as_the_task_itself_is_refused(sweep, programs, tiny_folder, tmp_path):
    programs(sbatch=f"touch {tmp_path}/submitted; exit 1")
    code, _, err = sweep(*ON_SLURM, "hydra.launcher.timeout_min=2", *small(tiny_folder))
    assert (code, len(err)) == (2, 1)
    assert "hydra.launcher.signal_delay_s=120 is all of hydra.launcher.timeout_min=2" in err[0]
    assert not (tmp_path / "submitted").exists()
    unlimited = ["hydra.launcher.timeout_min=0", "hydra.launcher.signal_delay_s=120"]
    assert sweep(*ON_SLURM, *unlimited, *small(tiny_folder))[0] == 1
    assert (tmp_path / "submitted").exists()


@pytest.mark.parametrize("several", ["hydra.launcher.tasks_per_node=2", "hydra.launcher.nodes=2"])
def test_jobs_of_several_processes_are_refused(several, sweep, programs, tiny_folder, tmp_path):
    """Each process would have made the same shard, and the second would have been refused as it starts."""
    programs(sbatch=f"touch {tmp_path}/submitted; exit 1")
    code, _, err = sweep(*ON_SLURM, several, *small(tiny_folder))
    assert (code, len(err)) == (2, 1) and f"{several} would make the same records" in err[0]
    assert not (tmp_path / "submitted").exists()


def test_jobs_that_slurm_does_not_take_are_not_said_to_be_in_the_status(sweep, programs, tiny_folder):
    programs(sbatch="echo sbatch: error: invalid partition specified: x >&2; exit 1")
    code, _, err = sweep(*ON_SLURM, *small(tiny_folder))
    assert (code, err[-1]) == (1, "kvbench: sbatch: error: invalid partition specified: x")


def test_a_folder_with_a_sign_that_slurm_replaces_is_refused(sweep, programs, tiny_folder, tmp_path):
    """It ended in a traceback once the jobs were submitted."""
    programs(sbatch=f"touch {tmp_path}/submitted; echo Submitted batch job 7", sacct=LEFT)
    code, _, err = sweep(*ON_SLURM, *small(tiny_folder, "output_dir=50%a"))
    assert (code, len(err)) == (2, 1) and "output_dir=50%a: Slurm replaces what follows a % sign" in err[0]
    assert not (tmp_path / "submitted").exists()


def test_of_a_task_that_failed_the_last_line_of_its_traceback_is_told():
    dashes = "-" * 22
    message = f"Job failed with trace:\n{dashes}\nTraceback:\n  run()\nValueError: x - y\n{dashes}\nYou can check logs"
    assert last_line(message) == "ValueError: x - y"
    assert last_line("it was lost\n") == "it was lost"
