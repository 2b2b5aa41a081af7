"""Runs in processes of their own: killed, stopped, interrupted, several that torchrun starts.

All in one file, for one fork server.
"""

import json
import signal
import subprocess
import sys

import pytest

from kvbench.records import load
from kvbench.records.manifest import read_manifests
from kvbench.records.store import RECORDS, Store, read_records, records_name
from tests.support.paths import ROOT
from tests.support.processes import Process
from tests.support.runs import arguments, comparable, outcomes, run
from tests.support.slurm_node import free_ports

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("interruptible")]


@pytest.mark.parametrize("moment", [1, 9])  # within a sample of 9 records, and after it
def test_a_killed_run_resumes_to_the_records_of_an_undisturbed_one(moment, undisturbed, tiny_folder, tmp_path):
    """SIGKILL once `moment` records are there, then the same command again."""
    command = arguments(tiny_folder, tmp_path)
    killed = Process("tests.support.signalled", str(moment), "SIGKILL", *command).ended()
    assert killed.returncode == -signal.SIGKILL
    path = tmp_path / undisturbed.name / RECORDS
    survived = path.read_bytes()
    assert survived.count(b"\n") == moment
    run(*command)
    assert comparable(path.parent) == comparable(undisturbed)
    assert path.read_bytes().startswith(survived)
    statuses = [json.loads(p.read_text())["status"] for p in sorted((path.parent / "manifests").iterdir())]
    assert statuses == ["running", "finished"]  # the first never got to say how it ended


def test_the_command_says_what_stopped_it_and_exits_as_a_shell_would(tiny_folder, tmp_path):
    stopped = Process("tests.support.signalled", "3", "SIGUSR1", *arguments(tiny_folder, tmp_path)).ended()
    told = stopped.stderr
    assert stopped.returncode == 128 + signal.SIGUSR1
    assert told.splitlines()[-1].startswith("kvbench: stopped by SIGUSR1; all finished records are saved")
    assert "Traceback" not in told
    (folder,) = tmp_path.iterdir()
    records, torn = read_records(folder / RECORDS)
    assert (len(records), torn) == (3, [])
    assert [each["status"] for each in read_manifests(folder)[0].values()] == ["stopped by SIGUSR1"]


def test_two_interrupts_end_the_process_with_130_and_no_traceback(tiny_folder, tmp_path):
    command = [sys.executable, "-m", "tests.support.signalled", "3", "SIGINT", "SIGINT"]
    done = subprocess.run(
        [*command, *arguments(tiny_folder, tmp_path, "method=[full,snapkv]", "ratio=0.5")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    (folder,) = tmp_path.iterdir()
    assert [len(part) for part in read_records(folder / RECORDS)] == [3, 0]


# Several that torchrun starts


def torchrun(*overrides: str) -> tuple[subprocess.CompletedProcess]:
    """`torchrun --nproc-per-node=2 -m kvbench OVERRIDES`, on a free port."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "kvbench"]
    return (Process(*launcher, *overrides, PYTHONPATH=str(ROOT)).ended(),)


def two_processes(*overrides: str) -> tuple[subprocess.CompletedProcess, subprocess.CompletedProcess]:
    """`kvbench OVERRIDES` twice with the variables that torchrun sets, but not watched over by torchrun."""
    (port,) = free_ports(1)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    both = [Process("kvbench", *overrides, RANK=rank, LOCAL_RANK=rank, **place) for rank in "01"]
    return tuple(process.ended() for process in both)


@pytest.mark.parametrize("start", [two_processes, pytest.param(torchrun, marks=pytest.mark.slow)])
def test_two_processes_make_the_records_of_one_and_one_table(start, undisturbed, tiny_folder, tmp_path):
    ended = start(*arguments(tiny_folder, tmp_path))
    assert {process.returncode for process in ended} == {0}, ended
    output, messages = ("".join(texts) for texts in zip(*((each.stdout, each.stderr) for each in ended), strict=True))
    (folder,) = tmp_path.iterdir()
    assert folder.name == undisturbed.name and outcomes(folder) == outcomes(undisturbed)
    assert {path.name for path in folder.glob("records*")} == {records_name(f"{i}-of-2") for i in range(2)}
    assert output.count("table.md") == 1 and (folder / "table.md").exists()
    assert "27/27" in messages and "9/9" not in messages
    assert {manifest["status"] for manifest in read_manifests(folder)[0].values()} == {"finished"}


def test_a_process_that_fails_alone_is_reported_by_the_first_and_stops_no_other(undisturbed, tiny_folder, tmp_path):
    with Store(tmp_path / undisturbed.name, "1-of-2"):  # the second process cannot write its records
        first, second = two_processes(*arguments(tiny_folder, tmp_path, "method=full"))
    assert first.returncode == 1
    assert (second.returncode, second.stdout + second.stderr) == (0, "")  # else torchrun would stop the first
    (line,) = [line for line in first.stderr.splitlines() if line.startswith("kvbench: ")]
    assert line.startswith("kvbench: process 1 of 2: another kvbench is writing"), first.stderr
    assert len(load(tmp_path / undisturbed.name)) == 2  # all of the first shard: two of the three needles


def test_a_mistake_in_the_command_is_one_line(tmp_path):
    first, second = two_processes("shards=2", f"output_dir={tmp_path}")
    assert first.returncode == 2
    assert first.stderr.startswith("kvbench: shards=2 shard=0 under torchrun, which makes each of its 2 processes")
    assert first.stderr.count("\n") == 1
    assert (second.returncode, second.stdout + second.stderr) == (0, "")
