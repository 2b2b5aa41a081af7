"""On a real Slurm of one node: arrays, a killed task, the warning before the time limit, a task that raises."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from kvbench.records.store import read_records, record_files
from kvbench.runner import status
from kvbench.runner.starting_note import STARTING
from tests.support.needs import needs
from tests.support.paths import ROOT
from tests.support.runs import TIMES, reported, run
from tests.support.slurm_node import Slurm, missing, one_node
from tests.support.waiting import HANG, wait_for

pytestmark = needs("slurm", missing())


@pytest.fixture(scope="module")
def slurm():
    # a short path, for a socket's name must be
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder, one_node(Path(folder)) as cluster:
        cluster.env["OMP_NUM_THREADS"] = "1"
        yield cluster


def arguments(tiny_folder: Path, out: Path, *more: str) -> list[str]:
    return [
        f"model.path={tiny_folder}",
        "model.shape=null",
        "model.max_length=4096",
        "benchmark.lengths=[320]",
        "benchmark.depths=[0,50,100]",
        "benchmark.max_new_tokens=4",
        "method=[full,snapkv]",
        "method._target_=tests.support.slow_method.Slow",
        "ratio=[0.2,0.3,0.4,0.5]",
        "decode.batch=1",  # a record after the other
        f"output_dir={out}",
        *more,
    ]


FAST, ALL = 5, 9  # records of a sample before the slow method's turn, and with it


@pytest.fixture
def gate(tmp_path_factory) -> Path:
    """A file that the slow method waits for, once it is in the environment."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def one_process(tiny_folder, tmp_path_factory) -> Path:
    return run(*arguments(tiny_folder, tmp_path_factory.mktemp("one")))


def comparable(folder: Path) -> list[dict]:
    """The records of all shards without what differs from run to run."""
    parts = [read_records(path) for path in record_files(folder)]
    assert all(torn == [] for _, torn in parts)
    rows = [{k: v for k, v in record.items() if k not in TIMES} for part, _ in parts for record in part]
    return sorted(rows, key=lambda row: row["key"])


def attempts(folder: Path, shard: int) -> list[dict]:
    """The manifests of a shard's attempts, the first first."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("*/manifests/*.json")]
    of_shard = [m for m in manifests if m["config"]["shard"] == shard and m["slurm"]]
    return sorted(of_shard, key=lambda m: m["slurm"]["restarts"])


def lines(out: Path, shard: str) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob(f"*/records.{shard}.jsonl"))


@pytest.fixture
def launch(slurm):
    """A sweep of the command through Hydra's launcher, on as many CPUs as there are; ended with the test."""
    started = []

    def start(*overrides: str, **env: str) -> subprocess.Popen:
        launcher = ["hydra/launcher=slurm", "hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1"]
        sweep = subprocess.Popen(
            [sys.executable, "-m", "kvbench", "-m", *launcher, *overrides],
            cwd=ROOT,
            env=slurm.env | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(sweep)
        return sweep

    yield start
    for sweep in started:
        sweep.kill()
        sweep.wait()


def warn(slurm: Slurm, task: str, *how: str) -> None:
    """The signal that Slurm sends before the time limit.

    A task that is being requeued makes scancel try again and again, until it hits the next attempt.
    """
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(["scancel", *how, task], env=slurm.env, capture_output=True, timeout=1, check=False)


WARNED, KILLED, FAILING = range(3)


def row(out: Path, shard: int, capsys) -> str:
    """What `kvbench status` says of a shard."""
    capsys.readouterr()
    assert status.main([str(out)]) == 1
    return next(line for line in capsys.readouterr().out.splitlines() if f"{shard}-of-3" in line)


def test_an_array_with_a_killed_a_warned_and_a_failing_task_gives_the_records_of_one_process(
    slurm, launch, one_process, tiny_folder, gate, tmp_path, capsys
):
    command = arguments(tiny_folder, tmp_path, "shards=3")
    env = {"KVBENCH_TEST_FILE": str(gate), "KVBENCH_TEST_FAILING": str(FAILING)}
    sweep = launch(*command, "shard=range(0,3)", **env)

    def waiting(shard: int) -> bool:
        assert sweep.poll() is None, sweep.communicate()[0]
        return lines(tmp_path, f"{shard}-of-3") == FAST

    wait_for(lambda: waiting(KILLED), slurm.log)
    killed = attempts(tmp_path, KILLED)[0]
    array = killed["slurm"]["array"]
    os.kill(killed["pid"], signal.SIGKILL)
    wait_for(lambda: waiting(WARNED), slurm.log)
    warn(slurm, f"{array}_{WARNED}", "--signal=USR2")
    wait_for(lambda: attempts(tmp_path, WARNED)[0]["status"] != "running", slurm.log)
    gate.touch()
    wait_for(lambda: slurm.job(f"{array}_{KILLED}")["JobState"] == "FAILED")
    assert "killed" in (shown := row(tmp_path, KILLED, capsys)) and f"/{ALL}" in shown
    slurm.command("scontrol", "requeue", f"{array}_{KILLED}")
    told = sweep.communicate(timeout=HANG)[0]
    assert sweep.returncode == 1
    last = told.splitlines()[-1]
    assert last.startswith(f"kvbench: job 3 of 3: shard={FAILING} failed: RuntimeError in slow_method.py, line ")
    assert last.endswith(": out of memory, as it were")
    assert "Traceback" not in told

    # For Slurm a task of submitit's that raised is complete.
    task = f"{array}_{FAILING}"
    wait_for(lambda: slurm.job(task)["JobState"] == "COMPLETED")  # its result is there while its steps still end
    assert slurm.job(task)["ExitCode"] == "0:0"
    (failed,) = attempts(tmp_path, FAILING)
    shown = row(tmp_path, FAILING, capsys)
    assert "failed" in shown and "out of memory, as it were" in shown
    assert row(tmp_path, WARNED, capsys).split()[-1] == failed["host"]
    assert lines(tmp_path, f"{FAILING}-of-3") == FAST  # what was made before is kept

    folder = reported(*command, f"shard={FAILING}")
    assert folder.name == one_process.name
    assert comparable(folder) == comparable(one_process)
    assert (folder / "table.md").exists()
    for shard, ended in ((WARNED, "stopped by SIGUSR2"), (KILLED, "running")):
        first, second = attempts(tmp_path, shard)
        assert (first["status"], second["status"]) == (ended, "finished")
        assert second["slurm"] == first["slurm"] | {"restarts": 1}
        assert second["there"] + second["records"] == second["wanted"] == ALL
    arrays = {each["slurm"]["array"] for shard in range(3) for each in attempts(tmp_path, shard)}
    assert arrays == {array}
    assert status.main([str(tmp_path)]) == 0
    assert not list((tmp_path / STARTING).iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"multirun.yaml", "slurm", STARTING, folder.name}


@pytest.mark.slow
def test_at_the_time_limit_a_task_of_an_array_goes_back_into_the_queue(launch, tiny_folder, tmp_path):
    limit = ["hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=30", "shards=2", "shard=range(0,2)"]
    sweep = launch(*arguments(tiny_folder, tmp_path, *limit, "limit=2"), KVBENCH_TEST_SECONDS="30")
    told = sweep.communicate(timeout=2 * HANG)[0]
    assert sweep.returncode == 0, told
    for shard in (0, 1):
        *stopped, finished = [each["status"] for each in attempts(tmp_path, shard)]
        assert (set(stopped), finished) == ({"stopped by SIGUSR2"}, "finished")
    assert status.main([str(tmp_path)]) == 0


def sbatch(slurm: Slurm, out: Path, *arguments: str, options: tuple[str, ...] = (), **env: str) -> str:
    """The array's number, submitted by the script."""
    command = ["sbatch", "--parsable", "--cpus-per-task=1", f"--output={out}/%a.log", *options]
    command += ["scripts/slurm_array.sbatch", *arguments]
    env = slurm.env | {"PYTHON": sys.executable} | env
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_a_warned_task_of_the_script_stops_with_whole_records_and_goes_on_when_requeued(
    slurm, one_process, tiny_folder, gate, tmp_path, capsys
):
    out = tmp_path / "runs"
    wanted = arguments(tiny_folder, out)
    array = sbatch(slurm, tmp_path, *wanted, options=("--array=0-1",), KVBENCH_TEST_FILE=str(gate))
    wait_for(lambda: lines(out, "1-of-2") == FAST)
    warn(slurm, f"{array}_1", "--batch", "--signal=USR1")
    wait_for(lambda: attempts(out, 1)[0]["status"] != "running", slurm.log)
    gate.touch()
    wait_for(lambda: len(attempts(out, 1)) == 2, slurm.log)
    wait_for(lambda: slurm.job(f"{array}_0")["JobState"] == "COMPLETED")
    wait_for(lambda: slurm.job(f"{array}_1")["JobState"] == "COMPLETED")
    (untouched,) = attempts(out, 0)
    first, second = attempts(out, 1)
    assert first["slurm"]["job"] == array  # the number of the whole array, too: only the task may be requeued
    assert untouched["status"] == "finished"
    assert first["status"] == "stopped by SIGUSR1"
    assert first["records"] == FAST
    assert (second["status"], second["there"]) == ("finished", first["records"])
    assert [each["slurm"]["restarts"] for each in (first, second)] == [0, 1]
    (folder,) = (path.parent for path in out.glob("*/manifests"))
    assert comparable(folder) == comparable(one_process)
    assert "kvbench: stopped by SIGUSR1" in (tmp_path / "1.log").read_text()
    assert status.main([str(out)]) == 0
    assert f"{array}_1 restart 1" in capsys.readouterr().out


@pytest.mark.slow
def test_at_the_time_limit_a_task_of_the_script_goes_back_into_the_queue(slurm, tiny_folder, tmp_path):
    limit = ("--array=0", "--time=2", "--signal=B:USR1@30")
    wanted = arguments(tiny_folder, tmp_path / "runs", "limit=1")
    task = f"{sbatch(slurm, tmp_path, *wanted, options=limit, KVBENCH_TEST_SECONDS='30')}_0"
    wait_for(lambda: slurm.job(task)["JobState"] == "COMPLETED", seconds=2 * HANG)
    *before, last = [each["status"] for each in attempts(tmp_path / "runs", 0)]
    # bash loses the exit code of a run that ends just as the signal comes: such a task goes back into the queue, too
    assert "stopped by SIGUSR1" in before and {*before} <= {"stopped by SIGUSR1", "finished"} and last == "finished"
