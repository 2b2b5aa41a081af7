"""Whether a run is warned of cores that other processes use."""

from types import SimpleNamespace

import psutil
import pytest
import torch

from kvbench.runner import busy_cores
from kvbench.runner.busy_cores import Use, use_of_cores, warn_of_busy_cores

BEFORE = Use(now=10.0, cores=2, everyone=100.0, own=5.0)


@pytest.fixture
def told(monkeypatch, capsys):
    """What is told of a model that loads for `seconds`, in which `others` and the process itself compute."""

    def told(seconds=4.0, others=6.0, own=2.0, threads=2, device="cpu"):
        after = Use(BEFORE.now + seconds, 2, BEFORE.everyone + others + own, BEFORE.own + own)
        monkeypatch.setattr(busy_cores, "use_of_cores", lambda: after)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        warn_of_busy_cores(SimpleNamespace(device=device), BEFORE)
        return " ".join(capsys.readouterr().err.split())

    return told


def test_it_names_the_share_of_others_and_what_helps(told):
    line = told()
    assert "other processes use 75% of the 2 cores, and this one has 2 threads" in line and "OMP_NUM_THREADS=1" in line


@pytest.mark.parametrize(
    "given",
    [{"others": 2.0}, {"others": 0.0, "own": 8.0}, {"threads": 1}, {"device": "cuda"}, {"seconds": 0.1}],
    ids=["a quarter is little", "the process's own", "one thread", "a GPU", "too short to tell"],
)
def test_it_is_silent_otherwise(told, given):
    assert told(**given) == ""


def test_engines_and_systems_without_a_list_of_cores_are_silent(capsys, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    warn_of_busy_cores(SimpleNamespace(), BEFORE)
    warn_of_busy_cores(SimpleNamespace(device="cpu"), None)
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    assert use_of_cores() is None
    warn_of_busy_cores(SimpleNamespace(device="cpu"), BEFORE)
    assert capsys.readouterr().err == ""


def test_the_use_counts_this_process_and_grows():
    before = use_of_cores()
    sum(range(5_000_000))
    after = use_of_cores()
    assert after.now > before.now and after.own > before.own
    assert after.everyone >= before.everyone and after.cores == before.cores >= 1
