"""The commands that a finished run names."""

from pathlib import Path

import pytest

from kvbench.runner.kinds import OfEngines, OfMethods, OfProbes
from kvbench.runner.next_commands import next_commands
from tests.support.runs import compose

RUN = Path("runs/niah of mine")


def named(*overrides: str, commands=OfMethods.goes_on, typed: list[str] | None = None) -> list[str]:
    program = ["/site/kvbench/__main__.py", *(overrides if typed is None else typed)]
    return next_commands(compose(*(one for one in overrides if one != "-m")), RUN, commands, program)


def test_what_was_typed_is_typed_again_but_for_what_a_frontier_chooses():
    assert named("method=[full,snapkv]", "ratio=[0.2,0.4]", "limit=3") == [
        "python -m kvbench report 'runs/niah of mine'",
        "python -m kvbench compare 'runs/niah of mine'",
        "python -m kvbench frontier 'method=[full,snapkv]' limit=3",
    ]
    typed = ["--config-dir", "mine", "method=snapkv"]
    assert named("method=snapkv", typed=typed) == [
        "python -m kvbench report 'runs/niah of mine' --config-dir mine",
        "python -m kvbench compare 'runs/niah of mine' --config-dir mine",
        "python -m kvbench frontier method=snapkv --config-dir mine",
    ]


def test_a_key_that_was_left_out_is_left_out_again():
    """`~KEY` was taken for a word of another program."""
    typed = ["method=adakv", "~method.adakv.scoring", "+method.adakv.scoring={_target_: kvbench.methods.CapKV}"]
    assert named(*typed)[-1].startswith("python -m kvbench frontier method=adakv '~method.adakv.scoring' '+method.")


def test_a_folder_that_begins_with_a_dash_is_no_option():
    (first, *_) = next_commands(compose(), Path("-runs/niah"), OfMethods.goes_on, ["/home/me/.venv/bin/kvbench"])
    assert first == "kvbench report ./-runs/niah"


def test_the_program_is_called_as_it_was():
    (first, *_) = next_commands(compose(), RUN, OfMethods.goes_on, ["/home/me/.venv/bin/kvbench"])
    assert first == "kvbench report 'runs/niah of mine'"


@pytest.mark.parametrize(
    "overrides",
    [
        ("method=full",),
        ("method=full", "method._target_=mine.Mine"),
        ("memory=stream", "method=snapkv"),
        ("-m", "method=snapkv"),
    ],
)
def test_there_is_no_frontier_of_what_it_does_not_take(overrides):
    assert [one.split()[3] for one in named(*overrides)] == ["report", "compare"]


def test_a_command_line_that_is_no_run_is_not_typed_again():
    assert [one.split()[3] for one in named("method=snapkv", typed=["-q", "tests"])] == ["report", "compare"]


@pytest.mark.parametrize(("name", "command"), [("pyramidkv_table1", "table"), ("pyramidkv_fig5", "figure")])
def test_an_experiment_has_its_table_or_figure(name, command):
    first, *rest = named(f"+experiment={name}", "limit=2")
    assert first == f"python -m kvbench {command} +experiment={name} limit=2"
    assert [one.split()[3] for one in rest] == ["report", "compare"]


def test_each_kind_of_records_has_the_commands_that_read_it():
    assert [one.split()[3] for one in named("method=snapkv", commands=OfEngines.goes_on)] == ["report", "compare"]
    assert named("probe=lazy_mass", commands=OfProbes.goes_on) == []
