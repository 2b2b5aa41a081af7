"""scripts/slurm_array.sbatch after the signal before the time limit: back into the queue, or a last word."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.heavy


def array_task(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Task 3 of 8, whose run SIGUSR1 has stopped, with programs that tell what they were given."""
    for name, text in {"python": "exit 138", "scontrol": 'echo scontrol "$@"; eval "$ANSWER"', "sleep": ""}.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}
    env = {"PATH": f"{folder}:{os.environ['PATH']}"} | task | env
    script = ["bash", ROOT / "scripts" / "slurm_array.sbatch", "limit=1"]
    return subprocess.run(script, env=env, capture_output=True, text=True, check=False)


def test_a_stopped_task_goes_back_into_the_queue(tmp_path):
    ended = array_task(tmp_path, SLURM_RESTART_COUNT="19")
    assert (ended.returncode, ended.stdout) == (138, "scontrol requeue 7_3\n")
    assert "kvbench" not in ended.stderr


def test_a_task_that_was_queued_too_often_says_that_it_is_not_again_and_what_goes_on(tmp_path):
    ended = array_task(tmp_path, SLURM_RESTART_COUNT="20")
    assert (ended.returncode, ended.stdout) == (138, "")
    assert "after 20 restarts (MAX_RESTARTS) this task is not queued again" in ended.stderr
    assert "SHARDS=8 sbatch --array=3" in ended.stderr


def test_a_controller_that_does_not_answer_at_first_is_asked_again(tmp_path):
    """The task was not queued again, and nothing said so."""
    ended = array_task(tmp_path, ANSWER=f"[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; exit 1; }}")
    assert (ended.returncode, ended.stdout) == (138, "scontrol requeue 7_3\n" * 2)
    assert "kvbench" not in ended.stderr


def test_a_task_that_slurm_does_not_queue_again_says_so_and_what_goes_on(tmp_path):
    ended = array_task(tmp_path, ANSWER="exit 1")
    assert (ended.returncode, {*ended.stdout.splitlines()}) == (138, {"scontrol requeue 7_3"})
    assert "kvbench: Slurm did not queue this task again; it goes on with SHARDS=8 sbatch --array=3" in ended.stderr
