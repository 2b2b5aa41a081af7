"""Processes that torchrun starts share a run: a shard each, one folder, one table, one that speaks."""

import json
import math

import pytest
from torch import distributed

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.errors import Incomplete, UserError
from kvbench.runner import torchrun
from kvbench.runner.run import run
from kvbench.runner.status import run_rows
from kvbench.runner.torchrun import Group, HandedOver, group_of_environment, one_speaks
from kvbench.utils.console import err, out
from tests.support.command import kvbench
from tests.support.runs import arguments, compose


def test_only_torchruns_variables_with_several_processes_make_a_group(monkeypatch):
    for name in torchrun.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert group_of_environment() is None
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert group_of_environment() is None
    monkeypatch.setenv("LOCAL_RANK", "1")
    group = group_of_environment()
    assert (group.rank, group.world, group.local, group.first) == (1, 4, 1, False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert group_of_environment() is None


def test_each_process_gets_its_shard_and_its_gpu(monkeypatch):
    cfg = compose("model=llama3-8b-random")
    cpu = Group(2, 4, 2).shard_of(cfg)
    assert (cpu.shards, cpu.shard, cpu.model.device) == (4, 2, "auto")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert Group(6, 8, 2).shard_of(cfg).model.device == "cuda:2"
    assert cfg.model.device == "auto"
    with pytest.raises(UserError, match=r"process 7 has no GPU: this machine has 4"):
        Group(7, 8, 7).shard_of(cfg)


@pytest.mark.parametrize(
    "override, line",
    [
        ("shards=2", "shards=2 shard=0 under torchrun"),
        ("model.device=cuda:0", "model.device=cuda:0 under torchrun"),
        ("model.device_map=auto", "model.device_map=auto under torchrun"),
    ],
)
def test_what_torchrun_decides_cannot_be_given_too(override, line):
    with pytest.raises(UserError, match=f"^{line}, which"):
        Group(0, 2, 0).shard_of(compose(override))


def test_processes_that_share_a_device_are_not_timed():
    """Each measured while the others computed."""
    cfg = compose("benchmark=speed", "benchmark.lengths=[64]")
    with pytest.raises(UserError, match="whose 2 processes would slow one another: run it without torchrun"):
        run(cfg, Group(0, 2, 0))
    Group(1, 2, 1).check_timed("cuda:1")


def test_a_command_under_torchrun_is_refused_before_its_processes_write_the_same_files(monkeypatch, capsys):
    """Of `kvbench frontier` one process or the other found the run's folder locked by its own twin."""
    monkeypatch.setattr("kvbench.__main__.GROUP", Group(0, 2, 0))
    assert kvbench("frontier", "method=snapkv") == 2
    told = "kvbench frontier works in one process, and torchrun started 2: leave torchrun out"
    assert capsys.readouterr().err == f"kvbench: {told}\n"


def test_all_but_the_first_are_silent_and_end_well_unless_a_signal_ended_them(monkeypatch):
    monkeypatch.setattr(err, "quiet", False)
    monkeypatch.setattr(out, "quiet", False)
    with pytest.raises(SystemExit) as stop, one_speaks(Group(0, 2, 0)):
        raise SystemExit(2)
    assert stop.value.code == 2 and not err.quiet
    for code, end in ((2, 0), (143, 143)):
        with pytest.raises(SystemExit) as stop, one_speaks(Group(1, 2, 1)):
            raise SystemExit(code)
        assert stop.value.code == end and err.quiet and out.quiet


class Gone:
    """The store of a torchrun that was killed."""

    def __getattr__(self, name):
        def call(*_):
            raise distributed.DistNetworkError("failed to recv, got 0 bytes.\\nException raised from recvBytes")

        return call


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("call", ["made", "wait", "hand_over"])
def test_a_torchrun_that_was_killed_is_one_line(call, rank):
    group = Group(rank, 2, rank)
    group.store = Gone()
    given = {"made": 1, "wait": lambda: None, "hand_over": torchrun.Outcome()}[call]
    with pytest.raises(Incomplete, match=r"^torchrun does not answer: it was stopped or killed\."), group.job():
        getattr(group, call)(given)


def test_an_error_is_told_where_torchrun_is_gone_too():
    group = Group(1, 2, 1)
    group.store = Gone()
    with pytest.raises(KeyError), group.job():
        raise KeyError


class Heard(dict):
    """The store of a torchrun, in this process."""

    set = dict.__setitem__

    def add(self, _, records):
        return records


@pytest.mark.heavy
def test_a_shard_whose_records_could_not_be_made_has_failed_and_the_first_process_gets_each(
    tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(NeedleInAHaystack, "score", lambda *_: {"digits": math.nan})
    group = Group(1, 2, 1)
    group.store = Heard()
    cfg = group.shard_of(compose(*arguments(tiny_folder, tmp_path, "method=full")))
    with pytest.raises(HandedOver, match="1 record could not be made; the first: no record of sample"), group.job():
        run(cfg, group)
    (outcome,) = map(json.loads, group.store.values())
    assert outcome["error"] is None and len(outcome["failures"]) == 1
    (folder,) = tmp_path.iterdir()
    (first, second) = run_rows(folder)
    assert (first.state, second.state) == ("not begun", "failed") and "could not be made" in second.error
