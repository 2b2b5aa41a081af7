"""`make chaos` sees a record that is lost, doubled or changed, and knows which fields may differ."""

import json

import pytest

from tests.chaos.commands import Violation
from tests.chaos.faults import Ground, outcomes

RECORD = {"key": "a", "run": "1", "decode_seconds": 1.0, "checksum": "x", "decode_batch": 5, "score": 1.0}
OTHER = {**RECORD, "key": "b"}


@pytest.fixture
def check(tmp_path):
    """Whether records hold after a fault, next to RECORD and OTHER."""
    (tmp_path / "before").mkdir()
    write(tmp_path / "before", RECORD, OTHER)
    ground = Ground(tmp_path, tmp_path / "before", outcomes(tmp_path / "before"), 1.0)

    def check(*records: dict, resumed: bool = True) -> None:
        (tmp_path / "after").mkdir()
        write(tmp_path / "after", *records)
        ground.check_whole(tmp_path / "after", "a fault", resumed)

    return check


def write(folder, *records):
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_times_and_checksums_may_differ(check):
    check(RECORD, {**OTHER, "run": "2", "decode_seconds": 2.0, "checksum": "y"}, resumed=False)


def test_after_a_resumption_settings_decode_in_another_batch(check):
    check({**RECORD, "decode_batch": 2}, OTHER)


def test_without_one_they_decode_in_the_same(check):
    with pytest.raises(Violation, match=r"0 records lost, changed \['decode_batch'\], 0 that nobody wanted"):
        check({**RECORD, "decode_batch": 2}, OTHER, resumed=False)


def test_a_changed_score_is_named(check):
    with pytest.raises(Violation, match=r"changed \['score'\]"):
        check({**RECORD, "score": 0.5, "decode_batch": 2}, OTHER)


def test_a_lost_an_unwanted_and_a_doubled_record_are_found(check, tmp_path):
    with pytest.raises(Violation, match=r"1 records lost, changed \[\], 1 that nobody wanted"):
        check(RECORD, {**OTHER, "key": "c"})
    write(tmp_path / "after", RECORD, RECORD)
    with pytest.raises(Violation, match="a is there twice"):
        outcomes(tmp_path / "after")
