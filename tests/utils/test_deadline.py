"""A deadline for a whole call."""

import threading

import pytest

from kvbench.utils.deadline import TooLong, within


def test_what_a_call_returns_or_raises_is_handed_on():
    assert within(60, lambda: 5) == 5
    with pytest.raises(KeyError, match="x"):
        within(60, lambda: {}["x"])


def test_a_call_that_does_not_end_is_left_behind():
    ended = threading.Event()
    with pytest.raises(TooLong, match=r"no whole answer within 0\.01 seconds"):
        within(0.01, ended.wait)
    ended.set()
