"""Rules of the house that ruff has none for; `make lint` runs it.

    python -m scripts.maintenance.check_style

One line for each place that breaks one: an assertion about time, a test file that is named after no module, a test file
that is too long to read, a test that is skipped out of turn, a result of several values without names.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, TESTS, SCRIPTS = ROOT / "kvbench", ROOT / "tests", ROOT / "scripts"

# --- time: a busy machine must fail no test; a guard against hanging is `wait_for` of tests/support/waiting.py

CLOCKS = {
    *("time", "time_ns", "perf_counter", "perf_counter_ns"),
    *("monotonic", "monotonic_ns", "process_time", "thread_time"),
}
CALLED = re.compile(rf"\b({'|'.join(sorted(CLOCKS))})\s*\(")


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
    if not CALLED.search(source):
        return []
    lines = set()
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
                lines.add(node.lineno)
    return sorted(lines)


# --- names: a test file mirrors a module of the room that its folder is named after

# Folders that are no room of the package, and files about many modules of one.
OTHER_FOLDERS = {"end_to_end"}
SUBJECTS = {
    "test_tests.py": "the tests",
    "test_chaos.py": "make chaos",
    "test_main.py": "the command line",
    "test_golden.py": "recorded results of presets and metrics",
    "test_contributing.py": "the lists of modules in CONTRIBUTING.md",
    "test_needs.py": "what a machine may lack",
    "test_versions.py": "the versions that are claimed",
    "engines/test_gate.py": "the workflow of docs/engines.md",
    "kernels/test_compiled_launches.py": "every kernel as its operator launches it, compiled",
    "kernels/test_launches.py": "where and in which grids kernels are launched",
    "kernels/test_specialisation.py": "what is compiled anew while decoding",
    "methods/test_every_method.py": "what holds for every file of conf/method",
    "methods/test_every_method_lengths.py": "the same at any length",
    "methods/test_every_method_float64.py": "the same in float64",
    "methods/test_value_width.py": "values of another width than keys",
    "methods/test_latents.py": "every preset over latents",
    "ops/test_fakes.py": "what torch assumes of operators' results",
    "runner/test_surroundings.py": "what a machine may lack",
    "runner/test_waiting_lines.py": "what a terminal shows meanwhile",
    "evaluation/test_devices.py": "methods, passes and probes on fake GPUs",
    "evaluation/test_launches.py": "what they launch there",
    "evaluation/test_launches_goals.py": "the goals for that",
    "scripts/test_results.py": "the commands that made results/",
    "scripts/test_slurm_array.py": "the script of bash for an array of Slurm",
    "methods/test_composition.py": "allocation, scoring, granularity and storage put together",
    "methods/test_composition_parts.py": "every part in every method that takes it",
    "methods/test_composition_returned.py": "what parts of a user's own return",
    "methods/test_decoding_launches.py": "what the layer caches of methods launch for a token",
}
# Where the modules lie that the tests of a folder are about, if not in the room of the same name.
ROOMS = {"scripts": [SCRIPTS], "kernels": sorted(PACKAGE.rglob("kernels"))}


@cache
def names_in(room: Path) -> frozenset[str]:
    """What a test file of a room may be named after: its modules and packages, with or without their package."""
    names: set[str] = set()
    for path in room.rglob("*"):
        if path.suffix == ".py" or path.is_dir():
            parts = path.relative_to(room).with_suffix("").parts
            names |= {parts[-1], "_".join(parts)}
    return frozenset(names)


def mirrors_a_module(path: str) -> bool:
    """Whether a test file, such as `cache/test_batch.py`, is named after a module or is one of SUBJECTS."""
    folder, _, name = path.rpartition("/")
    folder = folder.partition("/")[0]
    if folder in OTHER_FOLDERS or path in SUBJECTS:
        return True
    subject = name.removeprefix("test_").removesuffix(".py")
    names = frozenset().union(*map(names_in, ROOMS.get(folder, [PACKAGE / folder])))
    return any(subject == module or subject.startswith(f"{module}_") for module in names)


# --- skips: any other could not be made to fail in continuous integration

SKIP = re.compile(r"importorskip|skipif|pytest\.skip|mark\.skip|mark\.xfail|SkipTest|skipTest")
# The one way to skip, the two halves of `make test-kernels`, a test that asks for a whole collection, and their tests.
SKIPPING = {
    *("support/needs.py", "support/kernels.py"),
    *("test_needs.py", "test_tests.py", "scripts/test_check_style.py"),
}

# --- results: what a function returns is no bare tuple of three values, nor of two of the same type

# transformers' interface of caches; Triton unpacks what its functions return, and takes what gives them sizes as it is.
INTERFACES = {"update", "get_mask_sizes"}
UNPACKED = "kernels"
RETURNS_TUPLE = re.compile(r"->[^:]*\btuple\[")


def is_unnamed(annotation: ast.expr) -> bool:
    """Whether an annotation has such a tuple anywhere; tuple[X, ...] is a sequence."""
    for node in ast.walk(annotation):
        match node:
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
                types = [ast.unparse(part) for part in parts]
                if "..." not in types and (len(types) > 2 or len(set(types)) < len(types)):
                    return True
    return False


def unnamed_results(source: str) -> list[str]:
    """The functions whose results have no names."""
    if not RETURNS_TUPLE.search(source):
        return []
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return [each.name for each in functions if each.returns is not None and is_unnamed(each.returns)]


# --- all of them

MOST_LINES = 300


def faults(path: Path, source: str) -> Iterator[str]:
    """What is wrong with a file of kvbench, of the tests or of the scripts."""
    if path.is_relative_to(PACKAGE) and UNPACKED not in path.parts:
        for function in set(unnamed_results(source)) - INTERFACES:
            yield f"{function} returns several values without names: give them a NamedTuple"
    if (lines := source.count("\n")) > MOST_LINES:
        yield f"{lines} lines: {MOST_LINES} are as many as one reads"
    if path.is_relative_to(TESTS):
        name = path.relative_to(TESTS).as_posix()
        for line in timed_assertions(source):
            yield f"line {line} asserts about time: a busy machine fails it"
        if path.name.startswith("test_") and not mirrors_a_module(name):
            yield "named after no module of its room: rename it, or say in SUBJECTS what it is about"
        if SKIP.search(source) and name not in SKIPPING:
            yield "skips without tests/support/needs.py, which could make it fail in continuous integration"


def main() -> int:
    lines = []
    for folder in (PACKAGE, TESTS, SCRIPTS):
        for path in sorted(folder.rglob("*.py")):
            lines += [f"{path.relative_to(ROOT)}: {fault}" for fault in faults(path, path.read_text(encoding="utf-8"))]
    print("\n".join(lines) or "Every rule of the house holds")
    return min(len(lines), 1)


if __name__ == "__main__":
    sys.exit(main())
