"""One deadline for a whole request: a server that sends a byte now and then never runs into a socket's timeout."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


class TooLong(OSError):
    """A call did not end in time; the message states the limit."""

    def __init__(self, seconds: float):
        super().__init__(f"no whole answer within {seconds:g} seconds")


@dataclass(frozen=True)
class _Raised:
    """The call's error, instead of a result."""

    error: BaseException


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return or raise what `call` does. Raises TooLong after so many seconds; the call then continues unattended."""
    results: queue.SimpleQueue[Result | _Raised] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(call())
        except BaseException as error:
            results.put(_Raised(error))

    threading.Thread(target=work, daemon=True).start()  # a daemon does not keep the process from ending
    try:
        result = results.get(timeout=seconds)
    except queue.Empty:
        raise TooLong(seconds) from None
    if isinstance(result, _Raised):
        raise result.error
    return result
