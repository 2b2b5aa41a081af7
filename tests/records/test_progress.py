"""An unfinished run says how many of its records there are and why there are no more."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from kvbench.records import progress
from kvbench.records.progress import unfinished
from tests.support.loaded_records import manifest, record
from tests.support.loaded_records import write as write_run

MADE = 6
ATTEMPT = {"host": "here", "slurm": None, "requested": ["a"], "there": 0}


@pytest.fixture
def write(tmp_path):
    """A folder with MADE records of one run, whose manifest has these entries."""

    def written(config: Mapping = MappingProxyType({}), **entries) -> Path:
        config = {"model": {"name": "tiny"}, "benchmark": {}, "limit": None, "shard": 0, "shards": 1} | config
        made = [record(sample) for sample in range(MADE)]
        write_run(tmp_path, made, manifest(config=config, **ATTEMPT | entries))
        return tmp_path

    return written


def test_a_folder_with_all_its_records_says_nothing(write):
    assert unfinished(write(status="finished", wanted=MADE)) == ""


@pytest.mark.parametrize(
    ("entries", "alive", "why"),
    [
        ({"status": "stopped by SIGTERM"}, False, "stopped by SIGTERM"),
        ({"status": "stopped by OSError", "error": "no space left"}, False, "a run failed (no space left)"),
        ({"status": "running"}, False, "a run was killed"),
        ({"status": "running"}, True, "still running"),
        ({"status": "finished"}, False, "the others could not be made"),
    ],
)
def test_a_folder_without_some_says_why(write, monkeypatch, entries, alive, why):
    monkeypatch.setattr(progress, "held", lambda path: alive)
    assert unfinished(write(wanted=1960, **entries)) == f"unfinished: {MADE} of 1,960 records, {why}"


def test_a_shard_that_has_not_begun_is_named(write):
    folder = write(status="finished", wanted=MADE, config={"shards": 2})
    assert unfinished(folder) == "unfinished: 0 records, a shard has not begun"


def test_the_run_that_writes_its_table_does_not_call_itself_running(write, monkeypatch):
    monkeypatch.setattr(progress, "held", lambda path: True)
    folder = write(status="running", wanted=1960)
    assert unfinished(folder, "r1").endswith("records, the others could not be made")
    assert unfinished(folder, "r2").endswith("records, still running")
