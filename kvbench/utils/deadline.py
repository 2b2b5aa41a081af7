"""One deadline for a whole request: a server that sends a byte now and then never runs into a socket's timeout."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class TooLong(OSError):
    """A call did not end in time; `strerror` says after how long."""

    def __init__(self, seconds: float):
        super().__init__(f"no whole answer within {seconds:g} seconds")


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What `call` returns or raises. Raises TooLong after so many seconds; the call is then left to itself."""
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((call(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=work, daemon=True).start()  # a daemon: it does not keep the process from ending
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TooLong(seconds) from None
    if error is not None:
        raise error
    return result
