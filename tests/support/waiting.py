"""Waiting for what another process does."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

HANG = 300  # seconds that nothing takes, however busy the machine is

T = TypeVar("T")


def wait_for(what: Callable[[], T], log: Callable[[], str] = str, seconds: float = HANG, pause: float = 0.2) -> T:
    """The first true value of `what()`; the test fails with `log()` where there is none for `seconds`."""
    end = time.monotonic() + seconds
    while not (value := what()):
        if time.monotonic() > end:
            pytest.fail(f"nothing within {seconds} s: {log()}")
        time.sleep(pause)
    return value
