"""The tests as a whole: the fast ones reach every module. `make lint` checks their files one by one."""

import ast
import re
from pathlib import Path

import pytest

from kvbench import benchmarks, engines, methods, probes
from kvbench.utils.classes_by_name import places
from tests.support.paths import ROOT

PACKAGE = ROOT / "kvbench"
TEST_FILES = sorted((ROOT / "tests").rglob("test_*.py"))

# By the file of a package whose classes are found by their names, the modules that have them.
BY_NAME = {
    Path(package.__file__): {module for modules in places(package.__name__).values() for module in modules}
    for package in (benchmarks, engines, methods, probes)
}
MODULE = re.compile(r"kvbench(\.\w+)+")  # as in the table of commands

# Only a process of its own runs it, and the heavy tests start such.
ENTRY = PACKAGE / "__main__.py"


def imported(file: Path) -> set[str]:
    """Dotted names that a file imports, inside functions too or by a string: modules, and what it takes from them.

    A package imports every class that it finds by its name.
    """
    names = set(BY_NAME.get(file, ()))
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            names.add(node.value)
    return names | {name.rpartition(".")[0] for name in names}


def path_of(module: str) -> Path | None:
    """The file of a dotted name in the repository; None for a function, a class or another package."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def reached(start: set[Path]) -> set[Path]:
    """Files of the repository that `start` imports, directly or through others."""
    found, todo = set(), list(start)
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += [path for name in imported(file) if (path := path_of(name)) is not None]
    return found


def test_the_fast_tests_import_every_module(collected):
    """`make test-fast` runs the tests that are neither heavy nor slow."""
    needs_triton = {file for file in TEST_FILES if file.parent.name == "kernels"}
    if set(TEST_FILES) - needs_triton - {item.path for item in collected}:
        pytest.skip("only some of the tests were collected")
    fast = {item.path for item in collected if not {"heavy", "slow"} & {mark.name for mark in item.iter_markers()}}
    unreached = set(PACKAGE.rglob("*.py")) - reached(fast) - {ENTRY} - set(PACKAGE.rglob("kernels/*.py"))
    assert {str(file.relative_to(ROOT)) for file in unreached} == set()
