"""A fault in what an import runs: a process of its own imports kvbench and the tests again."""

import os
import resource
import sys
from pathlib import Path

from scripts.maintenance.mutation.places import Place, with_fault

PRELOADED = (
    "torch",
    "transformers",
    "pandas",
    "hydra",
    "matplotlib.pyplot",
    "datasets",
    "pytest",
    "rich",
    "hypothesis",
)


def outcome_of(tree: Path, path: str, place: Place, tests: list[str], limit: float) -> tuple[str, str]:
    """`found`, `endless`, `missed` or `not covered`, and the test that failed first."""
    if not tests:
        return "not covered", ""
    file = tree / path
    source, stat = file.read_text(encoding="utf-8"), file.stat()
    reader, writer = os.pipe()
    file.write_text(with_fault(source, place), encoding="utf-8")
    try:
        if not (child := os.fork()):
            os.close(reader)
            run_tests(tree, tests, 3 * int(limit) + 60, writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            failed = lines.read()
        _, status = os.waitpid(child, 0)
    finally:
        file.write_text(source, encoding="utf-8")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if os.WIFSIGNALED(status):
        return "endless", ""
    return ("missed", "") if os.WEXITSTATUS(status) == 0 else ("found", failed)


def run_tests(tree: Path, tests: list[str], seconds: int, failed: int) -> None:
    """In a process of its own: the tests until one fails. Ends the process with pytest's exit code."""
    import pytest

    class First:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                os.write(failed, report.nodeid.encode())

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    use(tree)
    code = 3
    try:
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests], plugins=[First()])
    finally:
        os._exit(int(code))


def use(tree: Path) -> None:
    """This process and its own import kvbench, scripts and tests of `tree` from now on."""
    os.chdir(tree)
    sys.path[0] = os.environ["PYTHONPATH"] = str(tree)
    for name in [name for name in sys.modules if name.split(".")[0] in {"scripts", "kvbench"}]:
        del sys.modules[name]
