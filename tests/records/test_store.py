"""The store: nothing lost, nothing twice, torn lines never read as data."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.records import load
from kvbench.records.store import RECORDS, Store, parse
from tests.support import records
from tests.support.paths import ROOT

# The records here are of no run.
pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:no manifest of run", "ignore:1 line of")]


def record(i: int) -> dict:
    return records.record(key=f"k{i}", sample=f"s{i}", prediction=f'é "{i}" \n\u2028 line', scores={"score": i / 7})


def write(folder, count):
    with Store(folder) as store:
        for i in range(count):
            store.append(record(i))


def test_records_come_back_as_they_were(tmp_path):
    write(tmp_path, 3)
    assert load(tmp_path)[list(record(0))].to_dict("records") == [record(i) for i in range(3)]
    assert (tmp_path / RECORDS).read_bytes().count(b"\n") == 3


def test_a_record_is_on_the_disk_when_append_returns(tmp_path):
    with Store(tmp_path) as store:
        store.append(record(0))
        assert parse((tmp_path / RECORDS).read_bytes()) == record(0)


@given(cut=st.integers(1, 60))
def test_a_write_cut_short_anywhere_loses_only_itself(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    write(folder, 4)
    path = folder / RECORDS
    whole = path.read_bytes()
    last = len(whole) - whole[:-1].rfind(b"\n") - 1
    path.write_bytes(whole[: len(whole) - min(cut, last - 1)])  # at least a byte of the last line remains
    with Store(folder) as store:
        assert store.done == {"k0", "k1", "k2"}
        assert store.set_aside == 1
        store.append(record(3))
    assert path.read_bytes() == whole
    assert (folder / "records.torn").stat().st_size > 0


@pytest.mark.parametrize("damage", [b"\x00\xff\xfe binary \n", b"[1, 2]\n", b'{"no": "key"}\n', b"\n"])
def test_a_damaged_line_in_the_middle_is_set_aside_and_the_rest_kept(tmp_path, damage):
    write(tmp_path, 3)
    path = tmp_path / RECORDS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + b"".join(lines[1:]))
    assert [row["key"] for row in load(tmp_path).to_dict("records")] == ["k0", "k1", "k2"]
    with Store(tmp_path) as store:
        assert (store.set_aside, store.done) == (1, {"k0", "k1", "k2"})
    assert path.read_bytes() == b"".join(lines)
    with Store(tmp_path) as store:
        assert store.set_aside == 0


def test_the_same_record_is_not_written_twice(tmp_path):
    write(tmp_path, 1)
    with Store(tmp_path) as store, pytest.raises(ValueError, match="already exists"):
        store.append(record(0))


def test_a_second_process_is_told_to_wait(tmp_path):
    code = f"from kvbench.records.store import Store; from pathlib import Path; Store(Path({str(tmp_path)!r}))"
    with Store(tmp_path):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another kvbench is writing" in other.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # the lock went with the process


@pytest.mark.parametrize("first, second", [("0-of-2", "1-of-3"), ("", "0-of-2"), ("1-of-2", "")])
def test_two_splits_of_the_samples_at_once_are_refused(first, second, tmp_path):
    """Both would make some of the records."""
    with Store(tmp_path, first), pytest.raises(UserError, match=r"another kvbench is writing records.* splits"):
        Store(tmp_path, second)
    with Store(tmp_path, second), pytest.raises(UserError, match="another kvbench is writing"):
        Store(tmp_path, second)  # the refused one has let go of its lock


def test_a_folder_that_cannot_be_written_is_a_users_mistake(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write records"):
        Store(tmp_path / "file" / "run")


def test_loading_from_a_folder_without_records_says_so(tmp_path):
    with pytest.raises(UserError, match=f"holds no {RECORDS}"):
        load(tmp_path)


@pytest.mark.heavy
def test_a_kill_in_the_middle_of_writing_leaves_whole_records(tmp_path):
    """A process that appends as fast as it can is killed; what it acknowledged is there."""
    code = (
        "from kvbench.records.store import Store; from pathlib import Path; from tests.support.records import record\n"
        f"store = Store(Path({str(tmp_path)!r}))\n"
        "for i in range(10**6):\n"
        "    store.append(record(key=f'k{i}', prediction='x' * 3000)); print(i, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    acknowledged = 0
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged == 40:
            process.kill()
    process.wait()
    with Store(tmp_path) as store:
        assert {f"k{i}" for i in range(acknowledged + 1)} <= store.done
        assert len(store.done) <= acknowledged + 2
