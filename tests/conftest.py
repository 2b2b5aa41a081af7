"""What all tests share: their order and marks. tests/support/fixtures.py has the fixtures."""

import gc
import os
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

# Before torch and rich start: nothing is fetched, and processes that run beside each other have one thread each.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("COLUMNS", None)  # rich keeps the width it finds on import: tests that need one set it
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what tests' processes compile is kept, here and in pytest_configure

import pytest

# Whole commands: all of its tests are heavy.
HEAVY_FOLDER = "end_to_end"
# Cases of a function that `make test-fast` runs, at equal distances from the first to the last one.
CASES = 6
# Temporary folders lie in memory where there is room: every record is synchronised to the disk, for which tests would
# wait a minute or two in all.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
COLLECTED = pytest.StashKey[list[pytest.Item]]()


def pytest_configure(config):
    """Fixtures of models are for processes that run tests, not for the one of `--numprocesses` that divides them up."""
    sys.dont_write_bytecode = False
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    config.pluginmanager.import_plugin("tests.support.needs")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        gc.disable()  # until all is collected: imports and tests make objects that stay
        from tests.support.shared_compositions import share_compositions

        share_compositions()
        config.pluginmanager.import_plugin("tests.support.unrendered")
        config.pluginmanager.import_plugin("tests.support.fixtures")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Begin with the files that have most heavy tests: begun last, one would keep one process busy alone."""
    for item in items:
        if item.path.parent.name == HEAVY_FOLDER:
            item.add_marker("heavy")
    for case in further_cases(items):
        case.add_marker("further")
    heavy = Counter(item.path for item in items if item.get_closest_marker("heavy"))
    items.sort(key=lambda item: -heavy[item.path])
    config.stash[COLLECTED] = list(items)


def further_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of functions beyond CASES for each."""
    cases = defaultdict(list)
    for item in items:
        cases[item.path, getattr(item, "originalname", item.name)].append(item)
    further = []
    for every in cases.values():
        chosen = {round(number * (len(every) - 1) / (CASES - 1)) for number in range(CASES)}
        further += [case for number, case in enumerate(every) if len(every) > CASES and number not in chosen]
    return further


def pytest_collection_finish(session):
    """What is imported and collected lives until the end: no garbage collection of a test's looks through it."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def collected(request) -> list[pytest.Item]:
    """All tests that were collected, those that a marker or name left out too."""
    return request.config.stash[COLLECTED]
