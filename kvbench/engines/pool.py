"""Jobs on several threads, whose results come in the order in which they are ready."""

from collections.abc import Callable, Generator, Iterable
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    threads: int,
    late: Callable[[Result], None] = lambda result: None,
) -> Generator[Result]:
    """`work` of every job, in the order in which they end. The first exception is raised here and begins no more jobs.

    No more than twice as many jobs as threads are begun or wait to be taken. Closing the iterator, as an exception
    does, begins no more jobs and hands results that are ready and were not taken to `late`. The threads are daemons: a
    run that a signal stops does not wait for pending answers.
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
            result, error = done.get()
            room.release()
            if error is not None:
                raise error
            yield result
    finally:
        for queue in (todo, done):
            for _ in range(queue.qsize()):
                if queue is todo:
                    _take(todo)
                elif (found := _take(done)) is not None and found[1] is None:
                    late(found[0])
        room.release(threads)  # threads that wait for room find nothing to do


def _take(queue: "SimpleQueue[Any]") -> Any:
    """The next of a queue; None of an empty one."""
    try:
        return queue.get_nowait()
    except Empty:
        return None
