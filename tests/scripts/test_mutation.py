"""Faults at places of the package: found in another checkout, and put into functions that are imported already."""

import importlib
import json
import sys
from dataclasses import asdict

from scripts.maintenance.mutation.places import found_again, of_row, places, with_fault
from scripts.maintenance.mutation.swap import changed_functions, functions_by_place, swap

SOURCE = '''
"""A module."""
from functools import cache

LIMIT = 4


def counted(limit=2):
    def below(x):
        return x < limit

    return below


@cache
def double(x):
    return x * 2


class Box:
    side = LIMIT + 3

    @property
    def room(self):
        return sum(self.side * x for x in (1, LIMIT))


made = counted()
'''


def fault(old: str, number: int = 0):
    return [place for place in places(SOURCE) if place.old == old][number]


def test_a_place_says_what_it_changes_and_in_which_function():
    place = fault("x < limit")
    assert (place.scope, place.text, place.kind) == ("counted.below", "(x <= limit)", "comparison")
    assert "return (x <= limit)" in with_fault(SOURCE, place)
    assert of_row(json.loads(json.dumps(asdict(place)))) == place


def test_a_place_is_found_where_its_file_and_lines_have_moved(tmp_path):
    package = tmp_path / "kvbench" / "elsewhere"
    package.mkdir(parents=True)
    (package / "new.py").write_text("import os\n\n" + SOURCE.replace("LIMIT + 3", "LIMIT + 5"))
    rows = [{"path": "kvbench/old.py", **asdict(fault(old))} for old in ("x * 2", "LIMIT + 3")]
    result = tmp_path / "before.jsonl"
    result.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ((path, place),) = found_again(result, tmp_path)
    assert (path, place.scope, place.line) == ("kvbench/elsewhere/new.py", "double", fault("x * 2").line + 2)


def swapped(tmp_path, monkeypatch, *faults):
    """The module of SOURCE, imported and then changed."""
    path = tmp_path / "module_with_faults.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(path.stem)
    monkeypatch.delitem(sys.modules, path.stem)
    functions = functions_by_place()
    for place in faults:
        swap(changed_functions(str(path), SOURCE, with_fault(SOURCE, place)), functions)
    return module


def test_functions_that_are_decorated_nested_or_made_earlier_run_the_fault(tmp_path, monkeypatch):
    module = swapped(tmp_path, monkeypatch, fault("x < limit"), fault("x * 2"), fault("self.side * x"))
    assert module.made(2) and module.counted(3)(3)
    assert module.double(3) == 1.5
    assert module.Box().room == 7 + 7 / 4


def test_what_an_import_runs_cannot_be_put_in():
    for place in (fault("4"), fault("LIMIT + 3"), fault("2"), fault("3")):
        assert changed_functions("module.py", SOURCE, with_fault(SOURCE, place)) is None
