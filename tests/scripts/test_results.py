"""Every file of results/ has a row in results/README.md with the command that made it, and the command exists."""

import re
from pathlib import PurePosixPath

import pytest

from kvbench.config import options
from kvbench.runner.help import COMMANDS
from tests.support.paths import ROOT

RESULTS = ROOT / "results"
ROWS = [
    (re.findall(r"`([^`]+)`", files), made)
    for files, made in re.findall(r"^\| (`.+?`) \| (.+) \|$", (RESULTS / "README.md").read_text("utf-8"), re.MULTILINE)
]
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


@pytest.mark.parametrize("made", sorted({made for _, made in ROWS}))
def test_the_command_of_a_row_exists(made):
    commands = re.findall(r"`([^`]+)`", made)
    assert commands or made == "by hand"
    assert [unknown(command) for command in commands] == [None] * len(commands)


NOWHERE = ["python -m scripts.results.no", "make no", "python -m kvbench no", "python -m kvbench engine=no", "ls"]


@pytest.mark.parametrize("command", NOWHERE)
def test_a_command_that_does_not_exist_is_found(command):
    assert unknown(command) is not None
