"""Jobs on several threads."""

from threading import Barrier, Event

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
