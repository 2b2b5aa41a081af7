"""Writers killed and side by side: nothing that was acknowledged is lost."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kvbench.errors import UserError
from kvbench.records import store
from kvbench.records.store import RECORDS, Store
from tests.support.paths import ROOT
from tests.support.store_records import lines, record, write

WRITERS = """
import os, signal, sys
from pathlib import Path
from tests.support.store_records import Store, record

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


@pytest.mark.heavy
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


RIVAL = """
import random, sys, time
from pathlib import Path
from kvbench.errors import UserError
from tests.support.store_records import RECORDS, Store, record

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


@pytest.mark.heavy
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
