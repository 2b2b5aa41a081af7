"""Jobs on several threads, whose results come in the order in which they are ready."""

from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_parallel(work: Callable[[Job], Result], jobs: Iterable[Job], threads: int) -> Iterator[Result]:
    """`work` of every job, in the order in which they end. The first exception is raised here and begins no more jobs.

    The threads are daemons: a run that a signal stops does not wait for pending answers.
    """
    todo: SimpleQueue[Job] = SimpleQueue()
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    left = 0
    for job in jobs:
        todo.put(job)
        left += 1

    def labour() -> None:
        while True:
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
            if error is not None:
                raise error
            yield result
    finally:
        while not todo.empty():
            try:
                todo.get_nowait()
            except Empty:
                break
