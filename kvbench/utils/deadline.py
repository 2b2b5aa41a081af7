"""One deadline for a whole request: a server that sends a byte now and then never runs into a socket's timeout."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


class TooLong(OSError):
    """A call did not end in time; `strerror` says after how long."""

    def __init__(self, seconds: float):
        super().__init__(f"no whole answer within {seconds:g} seconds")


@dataclass(frozen=True)
class _Raised:
    """In the place of a result: what the call raised."""

    error: BaseException


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What `call` returns or raises. Raises TooLong after so many seconds; the call is then left to itself."""
    done: queue.SimpleQueue[Result | _Raised] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put(call())
        except BaseException as error:
            done.put(_Raised(error))

    threading.Thread(target=work, daemon=True).start()  # a daemon: it does not keep the process from ending
    try:
        result = done.get(timeout=seconds)
    except queue.Empty:
        raise TooLong(seconds) from None
    if isinstance(result, _Raised):
        raise result.error
    return result
