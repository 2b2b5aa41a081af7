"""The store: nothing lost, nothing twice, torn lines never read as data; on full, failing and damaged disks too."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.records import gather, load
from kvbench.records.store import RECORDS, Store, parse
from tests.support.disks import files_up_to, nobody, resize, small_disk
from tests.support.store_records import line, lines, record, write

# The records here are of no run.
pytestmark = pytest.mark.filterwarnings("ignore:no manifest of run", "ignore:1 line of")


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


def test_the_same_record_is_not_written_twice(tmp_path):
    write(tmp_path, 1)
    with Store(tmp_path) as store, pytest.raises(ValueError, match="already exists"):
        store.append(record(0))


@pytest.mark.heavy
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


@pytest.mark.parametrize("room", [0, 1, 1000, 2890])
def test_a_full_disk_takes_whole_records_only_and_the_store_goes_on_when_there_is_room(room, tmp_path):
    before = lines(40)
    with Store(tmp_path) as opened:
        for i in range(40):
            opened.append(record(i))
        with files_up_to(len(before) + room), pytest.raises(UserError) as told:
            opened.append(record(40))
        assert str(told.value).startswith(f"cannot write records to {opened.path}: File too large; all earlier ones")
        assert opened.path.read_bytes() == before
        assert "k40" not in opened.done
        opened.append(record(40))
    assert (tmp_path / RECORDS).read_bytes() == lines(41)


def test_a_disk_of_its_own_that_runs_full(tmp_path):
    with small_disk(tmp_path, "64k"):
        with pytest.raises(UserError, match="No space left on device; all earlier ones are safe"):
            write(tmp_path, 100)
        content = (tmp_path / RECORDS).read_bytes()
        assert 0 < len(content) < 2**16 and lines(100).startswith(content) and content.endswith(b"\n")
        with pytest.raises(UserError, match="No space left on device"):
            write(tmp_path, 100)
        assert (tmp_path / RECORDS).read_bytes() == content
        resize(tmp_path, "1m")
        assert write(tmp_path, 100).read_bytes() == lines(100)


def test_a_torn_line_on_a_full_disk_waits_for_room(tmp_path):
    path = write(tmp_path, 30)
    torn = path.read_bytes()[:-7]
    path.write_bytes(torn)
    with files_up_to(20_000), pytest.raises(UserError, match=f"cannot write records to {tmp_path}: File too large"):
        Store(tmp_path)
    assert path.read_bytes() == torn
    assert not list(tmp_path.glob(".records*"))
    assert write(tmp_path, 30).read_bytes() == lines(30)


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_record_that_was_not_synced_is_taken_back(fault, tmp_path, monkeypatch):
    sync = os.fsync

    def fails(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise fault
        sync(descriptor)

    with Store(tmp_path) as opened:
        opened.append(record(0))
        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises((UserError, KeyboardInterrupt), match=r"Input/output error|^$"):
            opened.append(record(1))
        monkeypatch.undo()
        assert opened.path.read_bytes() == lines(1)
        opened.append(record(1))
    assert (tmp_path / RECORDS).read_bytes() == lines(2)


def test_a_folder_without_the_right_to_write_is_told_and_left_as_it_was():
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others all the way
    try:
        path = write(folder, 2)
        folder.chmod(0o555)
        for file in (path, folder / ".lock"):
            file.chmod(0o444)
        with nobody():
            with pytest.raises(UserError, match=f"cannot write records to {folder}: Permission denied"):
                Store(folder)
            assert gather(folder)[0]["key"].tolist() == ["k0", "k1"]  # reading needs no lock
        folder.chmod(0o755)
        path.chmod(0o000)
        with nobody(), pytest.raises(UserError, match=f"cannot read {path}: Permission denied"):
            gather(folder)
    finally:
        shutil.rmtree(folder)


DAMAGE = st.one_of(
    st.binary(max_size=40).map(lambda noise: b"\xff" + noise),  # never UTF-8
    st.sampled_from([b"\0" * 4096, b"\n", b"{}", b"[" * 100_000, b'{"key": ["k0"]}\n', b'{"key": "k0"', b"null\n"]),
)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 6), DAMAGE), min_size=1, max_size=4))
def test_torn_and_binary_lines_anywhere_are_set_aside_and_nothing_else(tmp_path_factory, damages):
    """Damage between lines, or running into the line that follows: whole lines stay, byte for byte."""
    folder = tmp_path_factory.mktemp("damaged")
    path = write(folder, 6, size=10)
    intact = [line(record(i, 10)) for i in range(6)]
    pieces = [*intact, b""]
    for place, damage in damages:
        pieces[place] = damage + pieces[place]
    path.write_bytes(b"".join(pieces))
    with path.open("rb") as file:
        whole = [piece for piece in file if piece in intact]
    with Store(folder) as opened:
        assert opened.set_aside > 0
        assert opened.done == {json.loads(piece)["key"] for piece in whole}
    assert path.read_bytes() == b"".join(whole)
    assert (folder / "records.torn").stat().st_size > 0
    write(folder, 6, size=10)
    with Store(folder) as opened:
        assert opened.set_aside == 0
    assert sorted(path.read_bytes().splitlines(keepends=True)) == sorted(intact)


@pytest.mark.heavy
@pytest.mark.parametrize("lost", [0, 100, 2500])
def test_a_tail_of_nul_as_after_a_power_cut_costs_only_what_it_replaced(lost, tmp_path):
    path = write(tmp_path, 4)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - lost] + b"\0" * (lost or 4096))
    kept = 4 - -(-lost // len(line(record(3))))
    frame, (torn, *_) = gather(tmp_path)
    assert frame["key"].tolist() == [f"k{i}" for i in range(kept)]
    assert torn.kind == "torn" and torn.wrong and "1 line of" in torn.message
    assert write(tmp_path, 4).read_bytes() == whole


@pytest.mark.parametrize(
    "name", [".lock", ".lock.samples", RECORDS, "records.torn", "records.0-of-2.torn", "manifests"]
)
def test_a_link_out_of_the_folder_is_refused_and_what_it_leads_to_unchanged(name, tmp_path):
    """A folder of somebody else's: a torn line would become a line of the file that a link names."""
    private = tmp_path / "private"
    private.write_bytes(b"mine")
    folder = tmp_path / "run"
    folder.mkdir()
    if name != RECORDS:
        (folder / RECORDS).write_bytes(b"not a record\n")
    (folder / name).symlink_to("../private")
    with pytest.raises(UserError, match=f"{name} is a link to a file outside of"):
        Store(folder)
    assert private.read_bytes() == b"mine"
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "missing")
    with pytest.raises(UserError, match="outside of"):
        Store(folder)
    assert not (tmp_path / "missing").exists()


def test_the_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk")
    with Store(tmp_path / "run") as store:
        assert store.path.exists()
