"""Stages of a check under one time limit: what there is no time for is skipped, and said to be."""

import time
import traceback
from collections.abc import Callable, Iterator


class Clock:
    """The time that is left of `minutes`, and of the stage that runs."""

    def __init__(self, minutes: float):
        self.end = time.perf_counter() + 60 * minutes
        self.stage_end = self.end
        self.left_over = 0.0  # seconds that earlier stages did not need
        self.skipped: list[str] = []

    def stage(self, seconds: float) -> None:
        """Start a stage of at most `seconds`."""
        self.stage_end = min(self.end, time.perf_counter() + seconds)

    def left(self) -> float:
        return self.stage_end - time.perf_counter()

    def all_left(self) -> float:
        return self.end - time.perf_counter()

    def each(self, items: list, name: Callable[[object], str] = str) -> Iterator:
        """The items, as long as there is time for another one like the slowest so far; the others are `skipped`."""
        slowest = 0.0
        for item in items:
            if self.left() < slowest:
                self.skipped.append(name(item))
                continue
            started = time.perf_counter()
            yield item
            slowest = max(slowest, time.perf_counter() - started)


def attempted(work: Callable[[], dict]) -> dict:
    """What `work` returns, or its error: one setting that fails leaves the others their results."""
    try:
        return work()
    except Exception as error:  # the result is a report of everything that goes wrong
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
