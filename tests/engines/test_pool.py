"""Jobs on several threads."""

import os
import signal
from contextlib import closing
from queue import SimpleQueue
from threading import Barrier, Event, Timer
from time import sleep

import pytest

from kvbench.engines import pool
from kvbench.engines.pool import in_parallel
from kvbench.utils.signals import Stopped, stoppable


def test_every_job_has_its_result():
    assert sorted(in_parallel(lambda x: x * x, range(20), 4)) == [x * x for x in range(20)]
    assert list(in_parallel(str, [], 4)) == []


def test_jobs_run_at_once():
    together = Barrier(3)
    results = in_parallel(lambda x: together.wait(60) >= 0, range(3), 3)  # each waits for the two others
    assert list(results) == [True] * 3


def test_an_exception_of_a_job_is_raised():
    def work(x: int) -> int:
        if x == 1:
            raise ValueError("broken")
        return x

    results = in_parallel(work, range(100), 1)
    assert next(results) == 0
    with pytest.raises(ValueError, match="broken"):
        list(results)


def test_a_caller_that_leaves_takes_the_open_jobs_along():
    release, begun = Event(), []

    def work(x: int) -> int:
        begun.append(x)
        if x:
            release.wait(60)
        return x

    results = in_parallel(work, range(100), 1)
    assert next(results) == 0
    results.close()
    release.set()
    assert len(begun) <= 2


def test_results_that_were_ready_and_not_taken_are_kept():
    """As a stop leaves them: none that has arrived is lost, and few are begun ahead."""
    arrived, kept = [], []

    def work(x: int) -> int:
        arrived.append(x)
        return x

    results = in_parallel(work, range(100), 2, kept.append)
    next(results)
    while len(arrived) < 5:  # four begun or waiting, and one for the room that the first left
        sleep(0.001)
    sleep(0.05)
    results.close()
    assert sorted(kept) == sorted(arrived) and len(arrived) <= 5


def test_an_error_that_was_not_taken_is_not_kept():
    kept, raised = [], Event()

    def work(x: int) -> int:
        if x == 2:
            raised.set()
            raise ValueError("broken")
        return x

    results = in_parallel(work, range(3), 2, kept.append)
    assert next(results) == 0
    raised.wait(60)
    sleep(0.05)
    results.close()
    assert kept == [0, 1]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["taken", "kept", "awaited"])
def test_a_signal_loses_no_result_that_has_arrived(when, signum, interruptible, monkeypatch):
    """It comes while a result is taken from the queue, while it is kept, or while none has arrived."""
    kept, pending = [], Event()

    class Queue(SimpleQueue):
        def get(self, *args, **options):
            result = super().get(*args, **options)
            if when == "taken" and len(kept) == 1:
                os.kill(os.getpid(), signum)
                sleep(0.01)  # the handler runs here
            return result

    def keep(x: int) -> None:
        if when == "kept" and len(kept) == 1:
            os.kill(os.getpid(), signum)
            sleep(0.01)
        kept.append(x)

    def work(x: int) -> int:
        if x == 2 and when == "awaited":
            Timer(0.05, os.kill, (os.getpid(), signum)).start()
            pending.wait(60)
        return x

    monkeypatch.setattr(pool, "SimpleQueue", Queue)
    results = in_parallel(work, range(100), 1, keep)
    with pytest.raises((Stopped, KeyboardInterrupt)), stoppable(), closing(results):
        list(results)
    pending.set()
    assert kept[:2] == [0, 1] and kept == sorted(kept) and (when != "awaited" or kept == [0, 1])
