"""Locks of processes, and what can be known of them from outside."""

import errno
import fcntl
import os
import socket

import pytest

from kvbench.utils import locks


def test_a_lock_is_held_until_its_file_is_closed(tmp_path):
    path = tmp_path / "lock"
    assert locks.held(path) is False
    with path.open("w") as file:
        locks.take(file)
        assert locks.held(path) is True
        with path.open() as other, pytest.raises(BlockingIOError):
            locks.take(other, patience=0)
    assert locks.held(path) is False


def test_who_holds_a_lock_is_told_while_another_waits(tmp_path):
    holding, told = locks.open_lock(tmp_path / "lock"), []
    locks.take(holding)

    def tell(line):
        told.append(line)
        if len(told) == 2:
            holding.close()

    with locks.open_lock(tmp_path / "lock") as waiting:
        locks.wait_for(waiting, tell, notice=0.001)
        assert locks.held(tmp_path / "lock") is True
    assert told == [f"waiting for {tmp_path / 'lock'}, which process {os.getpid()} on {socket.gethostname()} holds"] * 2


def test_a_lock_that_is_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(OSError, match="not a regular file"):
        locks.open_lock(tmp_path / "lock")
    assert locks.held(tmp_path / "lock") is None


@pytest.mark.parametrize("fault", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_leaves_it_open(fault, tmp_path, monkeypatch):
    (tmp_path / "lock").touch()

    def flock(file, how):
        raise OSError(fault, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert locks.held(tmp_path / "lock") is None


def test_a_lock_that_may_not_be_read_leaves_it_open(tmp_path):
    (tmp_path / "lock").mkdir()  # IsADirectoryError; as root no file is forbidden
    assert locks.held(tmp_path / "lock") is None
