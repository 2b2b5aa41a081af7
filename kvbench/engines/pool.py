"""Jobs on several threads, whose results come in the order in which they are ready."""

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, TypeVar

from kvbench.utils.signals import unbroken

Job = TypeVar("Job")
Result = TypeVar("Result")
TICK = 0.1  # seconds after which signals are handled while no result arrives


def in_parallel(
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    threads: int,
    keep: Callable[[Result], None] = lambda result: None,
) -> Generator[Result]:
    """The results of `work` on every job, in the order in which jobs end. The first exception is raised in the caller.

    `keep` is called with each result, in the caller's thread and to its end, before the result is yielded: a signal
    that stops a run comes before or after it. At most twice as many jobs as threads are running or wait to be kept.
    After an exception, or when the iterator is closed, no further job starts, and results that have arrived are kept.
    The threads are daemons: a run that a signal stops does not wait for pending answers.
    """
    todo: SimpleQueue[Job] = SimpleQueue()
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    room = Semaphore(2 * threads)
    left = 0
    for job in jobs:
        todo.put(job)
        left += 1

    def labour() -> None:
        while True:
            room.acquire()
            try:
                job = todo.get_nowait()
            except Empty:
                return
            try:
                done.put((work(job), None))
            except BaseException as error:
                done.put((None, error))

    for _ in range(min(threads, left)):
        Thread(target=labour, daemon=True).start()
    try:
        for _ in range(left):
            result = _kept(done, keep)
            room.release()
            yield result
    finally:
        for _ in range(todo.qsize()):
            _take(todo)
        with unbroken():
            for _ in range(done.qsize()):
                if (item := _take(done)) is not None and item[1] is None:
                    keep(item[0])
        room.release(threads)  # threads that wait for room find no jobs and end


def _kept(done: "SimpleQueue[tuple[Any, BaseException | None]]", keep: Callable[[Any], None]) -> Any:
    """The next result, after it was kept. Raises a job's exception."""
    while True:
        with unbroken(), suppress(Empty):
            result, error = done.get(timeout=TICK)
            if error is not None:
                raise error
            keep(result)
            return result


def _take(queue: "SimpleQueue[Any]") -> Any:
    """The next item of a queue; None if the queue is empty."""
    try:
        return queue.get_nowait()
    except Empty:
        return None
