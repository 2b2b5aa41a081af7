"""The tests themselves: nothing depends on the machine's speed, files mirror the package, and the fast ones reach
every module."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
PACKAGE = ROOT / "kvbench"
FILES = sorted(TESTS.rglob("*.py"))
TEST_FILES = [file for file in FILES if file.name.startswith("test_")]
MOST_LINES = 300

# --- time

CLOCKS = set("time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time thread_time".split())
CALLED = re.compile(rf"\b({'|'.join(CLOCKS)})\s*\(")


def reads_clock(node: ast.AST, timed: set[str]) -> bool:
    """Whether an expression calls a clock or uses a name in `timed`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in timed:
            return True
        if isinstance(part, ast.Call) and getattr(part.func, "attr", getattr(part.func, "id", "")) in CLOCKS:
            return True
    return False


def timed_assertions(source: str) -> list[int]:
    """Lines of assertions about a clock, directly or through variables of the same function."""
    lines = []
    if not CALLED.search(source):
        return lines
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        timed: set[str] = set()
        for node in sorted(ast.walk(function), key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if reads_clock(node.value, timed):
                    timed |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            elif isinstance(node, ast.Assert) and reads_clock(node.test, timed):
                lines.append(node.lineno)
    return sorted(set(lines))


@pytest.mark.parametrize(
    "body, found",
    [
        ("start = time.perf_counter()\n work()\n assert time.perf_counter() - start < 5", [4]),
        ("start = monotonic()\n took = monotonic() - start\n assert took < 1", [4]),
        ("while not done():\n  assert time.monotonic() < end", [3]),
        ("end = time.monotonic() + 300\n if time.monotonic() > end:\n  pytest.fail('hangs')", []),
        ("time.sleep(0.1)\n assert record['seconds'] > 0", []),
    ],
)
def test_timed_assertions_are_found(body, found):
    assert timed_assertions(f"def test():\n {body}") == found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_no_assertion_is_about_time(file):
    """A busy machine must fail no test; a guard against hanging is `wait_for` of tests/support/waiting.py."""
    assert timed_assertions(file.read_text(encoding="utf-8")) == []


# --- files

# Folders that are no room of the package, and files about many modules of one.
OTHER_FOLDERS = {"end_to_end"}
SUBJECTS = {
    "test_tests.py": "the tests",
    "test_chaos.py": "make chaos",
    "test_golden.py": "recorded results of presets and metrics",
    "test_contributing.py": "the lists of modules in CONTRIBUTING.md",
    "test_needs.py": "what a machine may lack",
    "test_returns.py": "the annotations of what functions return",
    "test_versions.py": "the versions that are claimed",
    "kernels/test_compiled_launches.py": "every kernel as its operator launches it, compiled",
    "kernels/test_launches.py": "where and in which grids kernels are launched",
    "kernels/test_specialisation.py": "what is compiled anew while decoding",
    "methods/test_every_method.py": "what holds for every file of conf/method",
    "methods/test_every_method_lengths.py": "the same at any length",
    "runner/test_surroundings.py": "what a machine may lack",
    "evaluation/test_devices.py": "methods, passes and probes on fake GPUs",
    "evaluation/test_launches.py": "what they launch there",
    "evaluation/test_launches_goals.py": "the goals for that",
    "scripts/test_results.py": "the commands that made results/",
    "methods/test_composition.py": "allocation, scoring, granularity and storage put together",
    "methods/test_composition_parts.py": "every part in every method that takes it",
    "methods/test_decoding_launches.py": "what the layer caches of methods launch for a token",
}


# Where the modules lie that the tests of a folder are about, if not in the room of the same name.
KERNELS = PACKAGE / "ops" / "kernels"
ROOMS = {"scripts": ROOT / "scripts", "kernels": KERNELS}


def names_in(room: Path) -> set[str]:
    """What a test file of a room may be named after: its modules and packages, with or without their package."""
    names = set()
    for path in room.rglob("*"):
        if path.suffix == ".py" or path.is_dir():
            parts = path.relative_to(room).with_suffix("").parts
            names |= {parts[-1], "_".join(parts)}
    return names


@pytest.mark.parametrize("file", TEST_FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_a_test_file_is_named_after_what_it_tests(file):
    folder, *_ = file.relative_to(TESTS).parent.parts or [""]
    if folder in OTHER_FOLDERS or str(file.relative_to(TESTS)) in SUBJECTS:
        return
    names = names_in(ROOMS.get(folder, PACKAGE / folder))
    subject = file.stem.removeprefix("test_")
    assert any(subject == name or subject.startswith(f"{name}_") for name in names), f"no module {subject} in {folder}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_no_file_is_too_long_to_read(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


# --- skips

SKIP = re.compile(r"importorskip|skipif|pytest\.skip|mark\.skip|mark\.xfail|SkipTest|skipTest")
# The one way to skip, the two halves of `make test-kernels`, and a test that asks for a whole collection.
SKIPPING = {"support/needs.py", "test_needs.py", "support/kernels.py", "test_tests.py"}


def test_what_a_machine_lacks_is_named_where_tests_are_skipped_for_it():
    """Any other skip could not be made to fail in continuous integration."""
    found = {str(file.relative_to(TESTS)) for file in FILES if SKIP.search(file.read_text(encoding="utf-8"))}
    assert found == SKIPPING


# --- make test-fast

MODULE = re.compile(r"kvbench(\.\w+)+")  # as in the table of commands

# Only a process of its own runs it, and the heavy tests start such.
ENTRY = PACKAGE / "__main__.py"


def imported(file: Path) -> set[str]:
    """Dotted names that a file imports, inside functions too or by a string: modules, and what it takes from them."""
    names = set()
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
    unreached = set(PACKAGE.rglob("*.py")) - reached(fast) - {ENTRY} - set(KERNELS.glob("*.py"))
    assert {str(file.relative_to(ROOT)) for file in unreached} == set()
