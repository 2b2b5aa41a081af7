"""The lists of modules in CONTRIBUTING.md name the files that exist; a method's file is in no list."""

import re

import pytest

from tests.support.paths import ROOT

ROOMS = ("runner", "evaluation", "cache")
# A room's name at the start of a line, and below it a line for each of its modules.
LIST = re.compile(r"^(\w+)/\n((?:  \S.*\n)+)", re.MULTILINE)
LISTED = dict(LIST.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize("room", ROOMS)
def test_contributing_has_a_line_for_each_module(room):
    entries = [line.split(maxsplit=1) for line in LISTED[room].splitlines()]
    folder = ROOT / "kvbench" / room
    modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    rooms = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    assert [name for name, _ in entries] == sorted(modules + rooms)


def test_contributing_names_what_methods_share():
    shared = [line.split(maxsplit=1)[0] for line in LISTED["methods"].splitlines()]
    assert shared == sorted(shared) and all((ROOT / "kvbench" / "methods" / name).exists() for name in shared)
