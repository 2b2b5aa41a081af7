"""All commands of a kind run, whatever fails, and what failed or lacks a value is named at the end."""

import sys

import pytest

from scripts import run_all
from scripts.made_by import commands_of

FAILS = 'python -c "raise SystemExit(3)"'
WRITES = "python -c \"open('made.txt', 'a').write('FOLDER')\""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(run_all, "ROOT", tmp_path)


def test_a_failure_stops_no_other_command_and_gives_exit_code_1(tmp_path, capfd):
    assert run_all.run_all([FAILS, "no-such-program", WRITES], {"FOLDER": "here"}) == 1
    assert (tmp_path / "made.txt").read_text() == "here"
    printed = capfd.readouterr().out
    assert "[3/3]" in printed and f"{FAILS}: failed: 3" in printed and "no-such-program: failed: [Errno 2]" in printed
    assert f"{WRITES}: done" in printed


def test_a_command_that_lacks_a_value_is_left_out_and_says_what_it_needs(tmp_path, capfd):
    assert run_all.run_all([WRITES], {}) == 0
    assert not (tmp_path / "made.txt").exists()
    assert capfd.readouterr().out.endswith(": left out: needs FOLDER=…\n")


@pytest.mark.parametrize(
    "words, says", [(["FOLDR=x"], "FOLDR: must be of FOLDER"), (["--only", "none"], "no command contains it")]
)
def test_a_wrong_argument_is_an_error_and_runs_nothing(words, says, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["scripts.benchmarks", *words])
    with pytest.raises(SystemExit) as stopped:
        run_all.main("", [WRITES, FAILS])
    assert stopped.value.code == 2 and says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_part_of_the_commands_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["scripts.benchmarks", "--only", "made.txt", "FOLDER=it"])
    assert run_all.main("", [WRITES, FAILS]) == 0
    assert (tmp_path / "made.txt").read_text() == "it"


def test_the_commands_of_a_kind_are_those_that_made_results():
    assert "python -m scripts.benchmarks.bench_overhead --json results/benchmarks/overhead.json" in commands_of(
        "benchmarks"
    )
    assert commands_of("results").count("python -m scripts.results.predict_gpu") == 1
