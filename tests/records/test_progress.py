"""An unfinished run says how many of its records there are and why there are no more."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from kvbench.records import progress
from kvbench.records.identity import setting_hash
from kvbench.records.manifest import next_number, read_manifests
from kvbench.records.parquet_records import write_records
from kvbench.records.progress import shares_of, unfinished
from kvbench.records.store import PACK, RECORDS, read_records
from tests.support.loaded_records import manifest, record, write_manifests
from tests.support.loaded_records import write as write_run

MADE = 6
ATTEMPT = {"host": "here", "slurm": None, "requested": [setting_hash(record())], "there": 0}
CONFIG = {"model": {"name": "tiny"}, "benchmark": {}, "limit": None, "shard": 0, "shards": 1}
CRASHED = {"status": "stopped by ValueError", "error": "too many bad lines"}


@pytest.fixture
def write(tmp_path):
    """A folder with MADE records of one run, whose manifest has these entries."""

    folder = tmp_path / "my runs"  # a command to paste has it in quotation marks

    def written(config: Mapping = MappingProxyType({}), **entries) -> Path:
        made = [record(sample) for sample in range(MADE)]
        write_run(folder, made, manifest(config=CONFIG | config, **ATTEMPT | entries))
        return folder

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


def test_a_pack_has_the_progress_of_its_run(write):
    """Its records are in another file than a run's, and every setting was said to have failed."""
    folder = write(status="finished", wanted=MADE)
    write_records(folder / PACK, read_records(folder / RECORDS).records)
    (folder / RECORDS).unlink()
    assert unfinished(folder) == ""
    write(status="stopped by SIGTERM", wanted=1960)
    (folder / RECORDS).unlink()
    assert unfinished(folder) == f"unfinished: {MADE} of 1,960 records, stopped by SIGTERM"


def test_a_shard_that_has_not_begun_is_named(write):
    folder = write(status="finished", wanted=MADE, config={"shards": 2})
    assert unfinished(folder) == "unfinished: 0 records, a shard has not begun"


def test_a_shard_that_has_not_begun_lacks_nothing_where_all_was_made_in_other_parts(write):
    """The table of all records said "unfinished: 0 records" once they were divided anew."""
    folder = write(status="finished", wanted=MADE)
    again = manifest("r2", config=CONFIG | {"shards": 3}, **ATTEMPT | {"there": 2}, status="finished", wanted=2)
    write_manifests(folder, again | {"number": 2})
    assert [share.state for share in shares_of(folder)[0]] == ["finished", "not begun", "not begun"]
    assert unfinished(folder) == ""
    write_manifests(folder, again | {"number": 2, "requested": [*ATTEMPT["requested"], "another"]})
    assert "a shard has not begun" in unfinished(folder)


def test_the_run_that_writes_its_table_does_not_call_itself_running(write, monkeypatch):
    monkeypatch.setattr(progress, "held", lambda path: True)
    folder = write(status="running", wanted=1960)
    assert unfinished(folder, "r1").endswith("records, the others could not be made")
    assert unfinished(folder, "r2").endswith("records, still running")


def test_settings_that_failed_are_counted_and_head_no_table(write):
    failed = CRASHED | {"requested": ["lost", "lost, too"], "run": "r0", "wanted": 2 * MADE}
    folder = write(status="finished", wanted=MADE)
    write_manifests(folder, manifest(config=CONFIG, **ATTEMPT | failed))
    assert unfinished(folder) == f"2 settings failed: kvbench status '{folder}'"
    assert unfinished(folder, "r1") == unfinished(folder)
    assert unfinished(folder, "r0") == f"unfinished: 0 of {2 * MADE} records, the others could not be made"


def test_of_a_request_only_the_settings_that_have_a_record_are_unfinished(write):
    mixed = {"requested": [*ATTEMPT["requested"], "lost"]}
    lost = f"1 setting failed: kvbench status '{write(wanted=2 * MADE, **CRASHED | mixed)}'"
    assert unfinished(write(wanted=2 * MADE, **CRASHED | mixed)) == lost
    said = unfinished(write(wanted=4 * MADE, **CRASHED | mixed))
    assert said == f"unfinished: {MADE} of {2 * MADE} records, a run failed (too many bad lines) · {lost}"


def test_records_that_a_later_request_made_count_for_a_request_that_failed(write):
    folder = write(status="finished", wanted=MADE)
    failed = CRASHED | {"requested": [*ATTEMPT["requested"], "lost"], "run": "r0", "wanted": 2 * MADE}
    write_manifests(folder, manifest(config=CONFIG, **ATTEMPT | failed))
    assert unfinished(folder) == f"1 setting failed: kvbench status '{folder}'"


@pytest.mark.parametrize(
    ("status", "alive", "why"),
    [("running", True, "still running"), ("stopped by SIGTERM", False, "stopped by SIGTERM")],
)
def test_settings_of_which_a_run_can_still_make_records_count(write, monkeypatch, status, alive, why):
    monkeypatch.setattr(progress, "held", lambda path: alive)
    said = unfinished(write(status=status, wanted=2 * MADE, requested=[*ATTEMPT["requested"], "coming"]))
    assert said == f"unfinished: {MADE} of {2 * MADE} records, {why}"


def test_a_manifest_of_more_shards_than_a_run_can_have_is_damaged_and_not_counted_out(write):
    folder = write({"shards": 10**12}, status="finished", wanted=MADE)
    shares, damaged = shares_of(folder)
    assert not shares and [path.name for path in damaged] == ["r1.json"]


def test_a_run_behind_the_largest_number_has_a_manifest_that_is_read_again(write):
    assert next_number(write(number=4)) == 5
    folder = write(number=2**63 - 1)
    write_manifests(folder, manifest("r2", number=next_number(folder)))
    assert {*read_manifests(folder)[0]} == {"r1", "r2"}
