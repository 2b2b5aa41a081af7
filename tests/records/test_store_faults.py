"""Faults injected under the store: nothing that was acknowledged is lost, and the same work goes on afterwards."""

import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.records import gather, store
from kvbench.records.store import RECORDS, Store, to_line
from tests.support import records
from tests.support.disks import files_up_to, nobody, resize, small_disk
from tests.support.paths import ROOT


def record(i: int, size: int = 2000) -> dict:
    return records.record(key=f"k{i}", sample=f"s{i}", prediction=f"é\n{i}\u2028" + "x" * size, scores={"score": i / 7})


def line(made: dict) -> bytes:
    return to_line(made)


def write(folder: Path, count: int, size: int = 2000) -> Path:
    """Whatever of `count` records is missing; the file they are in."""
    with Store(folder) as opened:
        for i in range(count):
            if f"k{i}" not in opened.done:
                opened.append(record(i, size))
    return folder / RECORDS


def lines(count: int, size: int = 2000) -> bytes:
    return b"".join(line(record(i, size)) for i in range(count))


# --- killed -----------------------------------------------------------------------------------------------------

WRITERS = """
import os, signal, sys
from pathlib import Path
from tests.records.test_store_faults import Store, record

folder, count = Path(sys.argv[1]), int(sys.argv[2])
for most in sys.stdin:  # a writer of at most this many records and one more for every line that comes in
    writer = os.fork()
    if not writer:
        print("pid", os.getpid(), flush=True)
        with Store(folder) as store:
            for made, i in enumerate(i for i in range(count) if f"k{i}" not in store.done):
                if made > int(most):
                    signal.pause()  # until it is killed, however late the test is
                store.append(record(i, size=1 + 400_000 * (i % 3)))
                print("made", i, flush=True)
        os._exit(0)
    print("end", os.waitpid(writer, 0)[1], flush=True)
"""


def test_a_writer_killed_at_random_moments_loses_nothing_it_acknowledged(tmp_path):
    count, kills, moments = 60, 0, random.Random(0)
    writers = subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(tmp_path), str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    made, status = set(), None
    while status != 0:
        writer, last = None, moments.randint(1, 12)
        writers.stdin.write(f"{last}\n")
        for told in writers.stdout:
            what, number = told.split()
            if what == "end":
                status = int(number)
                break
            if what == "pid":
                writer = int(number)
                continue
            assert int(number) not in made, "made twice"
            made.add(int(number))
            last -= 1
            if last == 0:
                time.sleep(moments.uniform(0, 0.004))  # somewhere in the writing of the next one
                with suppress(ProcessLookupError):  # the last writer may be through
                    os.kill(writer, signal.SIGKILL)
        kills += status == signal.SIGKILL
    writers.stdin.close()
    assert writers.wait() == 0 and kills >= 4
    whole, torn = store.read_records(tmp_path / RECORDS)
    assert not torn
    # A record that was on the disk before the kill but not yet acknowledged is there too, once.
    assert [r["key"] for r in whole] == [f"k{i}" for i in range(count)]
    assert whole == [record(i, size=1 + 400_000 * (i % 3)) for i in range(count)]


def test_a_kill_while_damaged_lines_are_set_aside_loses_no_line(tmp_path, monkeypatch):
    path = write(tmp_path, 3)
    damaged = path.read_bytes()[:-5]
    path.write_bytes(damaged)

    def killed(*_, **__):
        raise KeyboardInterrupt

    for step in ("replace", "unlink"):  # unlink: what cleans up does not run in a kill
        monkeypatch.setattr(Path, step, killed)
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path)
    monkeypatch.undo()
    assert path.read_bytes() == damaged
    assert write(tmp_path, 3).read_bytes() == lines(3)


# --- full, failing ----------------------------------------------------------------------------------------------


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


# --- damaged ----------------------------------------------------------------------------------------------------

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


# --- side by side -----------------------------------------------------------------------------------------------

RIVAL = """
import random, sys, time
from pathlib import Path
from tests.records.test_store_faults import RECORDS, Store, UserError, record

folder, name = Path(sys.argv[1]), sys.argv[2]
for i in range(12):
    made = record(i, size=20) | {"key": f"{name}-{i}"}
    while True:
        try:
            with Store(folder) as store:
                store.append(made)
                with (folder / RECORDS).open("ab") as file:  # as a kill would leave it
                    file.write(b'{"key": "torn')
            break
        except UserError as error:
            assert "another kvbench is writing" in str(error), error
            time.sleep(random.random() / 200)
"""


def test_processes_that_want_one_shard_take_turns_and_none_overwrites_another(tmp_path):
    """Each leaves a torn line, so each first puts a mended file in the place of the one that others may have open."""
    rivals = [
        subprocess.Popen([sys.executable, "-c", RIVAL, str(tmp_path), name], cwd=ROOT, stderr=subprocess.PIPE)
        for name in "abc"
    ]
    for rival in rivals:
        assert (rival.communicate()[1], rival.returncode) == (b"", 0)
    whole, torn = store.read_records(tmp_path / RECORDS)
    assert {r["key"] for r in whole} == {f"{name}-{i}" for name in "abc" for i in range(12)}
    assert len(whole) == 36 and len(torn) == 1


@pytest.mark.parametrize("fate", ["removed", "moved", "replaced"])
def test_a_folder_taken_away_under_a_writer_is_noticed_at_the_next_record(fate, tmp_path):
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with Store(folder) as opened:
        opened.append(record(0))
        shutil.rmtree(folder) if fate == "removed" else folder.rename(elsewhere)
        if fate == "replaced":
            write(folder, 1)
        with pytest.raises(UserError, match=f"{opened.path} was moved or removed while kvbench was writing it"):
            opened.append(record(1))
    if fate != "removed":
        assert (elsewhere / RECORDS).read_bytes() == lines(2)  # nothing lost
    assert folder.exists() == (fate == "replaced")
    assert write(folder, 2).read_bytes() == lines(2)
