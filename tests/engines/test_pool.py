"""Jobs on several threads."""

from threading import Barrier, Event
from time import sleep

import pytest

from kvbench.engines.pool import in_parallel


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


def test_results_that_were_ready_and_not_taken_are_handed_over():
    """As a stop leaves them: none that has arrived is lost, and few are begun ahead."""
    arrived, late = [], []

    def work(x: int) -> int:
        arrived.append(x)
        return x

    results = in_parallel(work, range(100), 2, late.append)
    taken = [next(results)]
    while len(arrived) < 5:  # four begun or waiting, and one for the room that the first left
        sleep(0.001)
    sleep(0.05)
    results.close()
    assert sorted(taken + late) == sorted(arrived) and len(arrived) <= 5


def test_an_error_that_was_not_taken_is_not_handed_over():
    late, raised = [], Event()

    def work(x: int) -> int:
        if x == 2:
            raised.set()
            raise ValueError("broken")
        return x

    results = in_parallel(work, range(3), 2, late.append)
    assert next(results) == 0
    raised.wait(60)
    sleep(0.05)
    results.close()
    assert late == [1]
