"""Every file of results/ has a row in results/README.md with the command that made it; the command exists, and its
script takes its options."""

import argparse
import importlib
import re
import shlex
import sys
from pathlib import PurePosixPath

import pytest

from kvbench.configuration.conf import options
from kvbench.runner.commands import COMMANDS
from scripts.compare.__main__ import COMMANDS as COMPARISONS
from scripts.made_by import made_by
from tests.support.needs import needs, packages
from tests.support.paths import ROOT

RESULTS = ROOT / "results"
ROWS = made_by()
FILES = sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*") if path.is_file())
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def matches(file: str, pattern: str) -> bool:
    """`*` stands for one folder or a part of its name."""
    if pattern.startswith("**/"):
        return file.endswith(pattern[2:]) or file == pattern[3:]
    return PurePosixPath(f"/{file}").match(f"/{pattern}")


def unknown(command: str) -> str | None:
    """What there is not of what a command names: a script, a target of make, a command or a choice of kvbench."""
    words = command.split()
    match words:
        case ["python", "-m", module, *_] if module.startswith("scripts."):
            return None if (ROOT / f"{module.replace('.', '/')}.py").is_file() else module
        case ["make", target]:
            return None if target in TARGETS else target
        case ["python", "-m", "kvbench", first, *_]:
            group, equals, choice = first.partition("=")
            if not equals:
                return None if first in COMMANDS else first
            return None if group == "first_token" or choice in options(group) else first
        case ["run"] | ["FOLDER"]:
            return None
    return command


def test_every_file_has_one_row_and_every_row_files():
    for file in FILES:
        found = [made for patterns, made in ROWS if any(matches(file, one) for one in patterns)]
        assert len(found) == 1, (file, found)
    for patterns, made in ROWS:
        for pattern in patterns:
            there = any(matches(file, pattern) for file in FILES)
            assert there != made.endswith("not yet run"), pattern


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.patterns[0])
def test_the_command_of_a_row_exists(row):
    commands = row.commands
    assert commands or row.by == "by hand"
    assert [unknown(command) for command in commands] == [None] * len(commands)


NOWHERE = ["python -m scripts.results.no", "make no", "python -m kvbench no", "python -m kvbench engine=no", "ls"]


@pytest.mark.parametrize("command", NOWHERE)
def test_a_command_that_does_not_exist_is_found(command):
    assert unknown(command) is not None


class Parsed(Exception):
    """A script took its arguments: it goes no further."""


def takes(command: str, monkeypatch) -> bool:
    """Whether the script of `python -m scripts.…` parses the words after its name, as it does before anything else."""
    _, _, module, *words = shlex.split(command)
    parse = argparse.ArgumentParser.parse_args

    def and_stop(parser: argparse.ArgumentParser, *given: object) -> None:
        parse(parser, *given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", and_stop)
    monkeypatch.setattr(sys, "argv", [module, *words])
    try:
        importlib.import_module(module).main()
    except Parsed:
        return True
    except SystemExit:
        return False
    raise AssertionError(f"{module} parses no arguments")


TRITON = needs("triton", packages("triton", "triton"))
SCRIPTS = [one for row in ROWS for one in row.commands if one.startswith("python -m scripts.")]
# The interpreter of kvpress's environment runs the same modules.
SCRIPTS += [one.replace("KVPRESS_PYTHON", "python") for one in COMPARISONS]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=[TRITON] if "compile_kernels" in one else []) for one in sorted(set(SCRIPTS))],
)
def test_the_script_of_a_row_takes_its_options(command, monkeypatch):
    assert takes(command, monkeypatch)


@pytest.mark.heavy
@pytest.mark.parametrize("words", ["bench_overhead --jsn x", "bench_host --repeats many", "sample_efficiency"])
def test_options_that_a_script_does_not_take_are_found(words, monkeypatch):
    assert not takes(f"python -m scripts.benchmarks.{words}", monkeypatch)


def test_every_script_has_a_row_in_the_readme_of_scripts():
    readme = (ROOT / "scripts" / "README.md").read_text("utf-8")
    for file in (ROOT / "scripts").glob("*/*.py"):
        if file.name != "__main__.py" and '__name__ == "__main__"' in file.read_text("utf-8"):
            section = readme.partition(f"\n## {file.parent.name}\n")[2].partition("\n## ")[0]
            assert re.search(rf"^\| .*`{file.name}`.* \| ", section, re.MULTILINE), file
