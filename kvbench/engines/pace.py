"""The time left of a run of engines, from its answers so far; and their tokens per second."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from kvbench.benchmarks import Sample
from kvbench.engines.record import EngineRun


class Seconds(NamedTuple):
    """Bounds of the remaining time."""

    low: float
    high: float


class Pace:
    """The progress of a run (see kvbench.runner.estimate.Estimate), from answers alone."""

    long = False  # no announcement: nothing is predicted before the first answer
    warned = True  # no warning of a setting that dominates: engines' settings take as long as their server

    def __init__(self, left: int, part: str = "", clock: Callable[[], float] = time.perf_counter, rated: bool = True):
        """rated: whether the records have all tokens that were read and written, so that tokens/s is shown."""
        self.ahead = left  # records to make
        self.part, self.clock, self.since = part, clock, clock()
        self.answers = self.tokens = 0
        self.rated = rated

    def made(self, record: Mapping[str, Any]) -> bool:
        """Count a record. Returns True: no table waits for it, because settings are not compared by sample."""
        self.ahead = max(self.ahead - 1, 0)
        self.answers += 1
        self.tokens += record.get("prompt_tokens", 0) + len(record.get("tokens") or ())
        return True

    @property
    def measuring(self) -> bool:
        """Whether there is no answer yet."""
        return not self.answers

    def left(self) -> float:
        """Seconds until the last record."""
        elapsed = self.clock() - self.since
        return self.ahead * elapsed / self.answers if self.answers else 0.0

    def span(self) -> Seconds:
        return Seconds(self.left(), self.left())

    @property
    def rate(self) -> str:
        """Tokens read and written per second, as text for the progress line."""
        elapsed = self.clock() - self.since
        return f"{self.tokens / elapsed:,.0f} tokens/s" if self.rated and self.tokens and elapsed > 0 else ""


def pace_of(
    run: EngineRun, samples: Sequence[Sample], done: Container[str], part: str = "", rated: bool = True
) -> Pace:
    """The pace of the records of `samples` that are not done."""
    return Pace(sum(run.key(s, setting) not in done for s in samples for setting in run.settings), part, rated=rated)
