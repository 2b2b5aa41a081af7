"""A plugin of pytest: the lines of kvbench that each test runs, and its CPU seconds, as files in $TRACE.

What a test's own processes run is not traced; their CPU seconds count.
"""

import json
import os
import resource
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ.get("TRACE", "build/trace"))
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
COVERAGE = coverage.Coverage(data_file=FOLDER / f"lines.{WORKER}", source=["kvbench"], config_file=False)


def cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def pytest_configure(config):
    if WORKER != "alone" or not config.getoption("numprocesses", None):
        FOLDER.mkdir(parents=True, exist_ok=True)
        COVERAGE.start()
        COVERAGE.switch_context("import")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    COVERAGE.switch_context(item.nodeid)
    before = cpu_seconds()
    yield
    with (FOLDER / f"seconds.{WORKER}.jsonl").open("a") as file:
        file.write(json.dumps([item.nodeid, round(cpu_seconds() - before, 3)]) + "\n")


def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None):
        COVERAGE.stop()
        COVERAGE.save()
