"""Weights & Biases is optional, resumes, and never stops a run."""

import subprocess
import sys
from dataclasses import replace
from statistics import mean
from types import SimpleNamespace

import pandas as pd
import pytest

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.configuration.sections import Wandb
from kvbench.records.store import RECORDS, read_records
from kvbench.runner import tracking
from kvbench.runner.tracking import Tracker
from tests.support.paths import ROOT
from tests.support.runs import arguments, run
from tests.support.waiting import HANG

pytestmark = pytest.mark.heavy

OFFLINE = Wandb("offline", "kvbench-test", None)
RECORD = {"setting": "snapkv 0.2", "scores": {"exact": 1.0}}
TABLE = pd.DataFrame({"setting": ["snapkv 0.2"], "exact": [0.5]})


@pytest.fixture
def told():
    return []


def tracker(folder, told, options=OFFLINE, name="niah-tiny-1234"):
    made = Tracker(options, name, folder, told.append)
    made.start({"config": {"ratio": 0.2}})
    return made


def test_disabled_does_nothing_and_needs_nothing(tmp_path, told, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)  # as if not installed
    idle = tracker(tmp_path, told, Wandb("disabled", "p", None))
    idle.record(RECORD)
    idle.finish({"table": TABLE}, [])
    assert not told and not list(tmp_path.iterdir())


@pytest.mark.heavy
def test_offline_writes_a_run_that_resumes_under_the_same_id(tmp_path, told):
    ids = []
    for _ in range(2):
        live = tracker(tmp_path, told)
        ids.append(live.run.id)
        live.record(RECORD)
        live.finish({"table": TABLE}, [])
        assert not live.active
    assert not told
    assert len(set(ids)) == 1
    runs = [path.name for path in (tmp_path / "wandb").glob("offline-run-*")]
    assert runs and all(name.endswith(ids[0]) for name in runs)
    other = tracker(tmp_path, told, name="niah-tiny-1234 1-of-2")
    assert other.run.id != ids[0]
    other.close()


def by_depth(benchmark, sample, prediction):
    return {"digits": sample.meta["depth"] / 100, "exact": 0.0}


def test_a_resumed_run_logs_means_over_all_records(tiny_folder, tmp_path, monkeypatch):
    """A job that Slurm had requeued logged the means of the records since then as those of its settings."""
    logged = []

    def start(tracker, manifest):
        tracker.run = SimpleNamespace(log=logged.append, finish=lambda exit_code: None)

    monkeypatch.setattr(Tracker, "start", start)
    monkeypatch.setattr(Tracker, "finish", lambda *_: None)
    monkeypatch.setattr(NeedleInAHaystack, "score", by_depth)
    run(*arguments(tiny_folder, tmp_path, "limit=1", "method=full"))
    folder = run(*arguments(tiny_folder, tmp_path, "method=full"))
    scores = [record["scores"]["digits"] for record in read_records(folder / RECORDS).records]
    assert len({*scores}) == 3
    assert [values["digits/full"] for values in logged] == pytest.approx([mean(scores[: i + 1]) for i in range(3)])


def test_a_failure_is_told_once_and_the_run_goes_on(tmp_path, told):
    live = tracker(tmp_path, told)
    real = live.run

    class Broken:
        def log(self, values):
            raise ConnectionError("the server is gone\nwith a second line")

    live.run = Broken()
    live.record(RECORD)
    live.record(RECORD)
    live.finish({"table": TABLE}, [])
    assert told == ["logging to Weights & Biases has stopped: the server is gone"]
    real.finish()


def test_no_key_and_no_network_leave_a_warning(tmp_path, told, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(tracking, "_WAIT", 1)
    live = tracker(tmp_path, told, replace(OFFLINE, mode="online"))
    assert not live.active and len(told) == 1


def test_an_uninstalled_package_leaves_a_warning(tmp_path, told, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    assert not tracker(tmp_path, told).active
    assert len(told) == 1


SILENT = """
import os, pathlib, socket, sys
from kvbench.configuration.sections import Wandb
from kvbench.configuration.sections import Wandb
from kvbench.runner import tracking
tracking._WAIT = tracking._EXIT = 1
server = socket.create_server(("127.0.0.1", 0))  # connections queue up, and nothing answers
os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}"}
options = Wandb("online", "p", None)
with tracking.Tracker(options, "niah-tiny", pathlib.Path(sys.argv[1]), print) as live:
    live.start({})
    live.finish({}, [])
print("over")
"""


@pytest.mark.slow
def test_a_server_that_never_answers_lets_the_process_end(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
    )
    assert done.stdout.count("logging to Weights & Biases has stopped") == 1
    assert done.stdout.endswith("over\n")
    assert "Traceback" not in done.stderr


def test_every_wait_for_the_server_has_a_bound(tmp_path, told, monkeypatch):
    given = {}
    monkeypatch.setattr("wandb.init", lambda **options: given.update(options))
    tracker(tmp_path, told)
    settings = given["settings"]
    assert settings.init_timeout == settings.finish_timeout == tracking._WAIT
    assert settings.finish_timeout_raises  # else an upload that was cut off would go unnoticed
