"""The progress of a run on standard error: a bar on a terminal, one line in a notebook, else a line every minute."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from kvbench.benchmarks import Sample
from kvbench.evaluation.record import AnyRun, Failure
from kvbench.records.store import Store
from kvbench.runner.estimate import Estimate
from kvbench.runner.shards import requested_keys
from kvbench.runner.time_spent import TimeSpent, dominant
from kvbench.runner.torchrun import Group
from kvbench.utils.console import err, in_cell, warn
from kvbench.utils.text import count, duration

EVERY = 60.0  # seconds between two lines where there is no terminal
EVERY_IN_CELL = 1.0  # seconds after which a notebook's line is replaced
LONG = 60.0  # seconds that a dominating setting must cost to be worth a warning


class Column(ProgressColumn):
    """A text that is computed whenever the bar is drawn."""

    def __init__(self, text: Callable[[], str]):
        super().__init__()
        self.text = text

    def render(self, task: Task) -> Text:
        return Text(self.text())  # ids are data, not markup


def with_progress(
    records: Iterable[dict[str, Any] | Failure],
    run: AnyRun,
    samples: Sequence[Sample],
    store: Store,
    failures: list[Failure],
    estimate: Estimate,
    group: Group | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield `records` and show how many of all requested records exist, including those of earlier runs.

    `estimate` is for this process's records. Failures are reported as they come, collected in `failures`, and not
    yielded. In a `group` the records of all processes count, and the first process waits for the others.
    """
    requested = requested_keys(run, samples)
    done = len(requested & store.done)
    if done:
        warn(f"{done} of {len(requested)} records already exist and are not computed again")
    announce(estimate)
    columns = (
        Column(lambda: run.stage.text or run.benchmark.name),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
        Column(lambda: left(estimate)),
    )
    of_sample: dict[str, list[dict[str, Any]]] = {}  # of unfinished samples
    spent, began = TimeSpent(), time.perf_counter()
    with Progress(*columns, console=err, disable=err.is_jupyter) as progress:
        task = progress.add_task(run.benchmark.name, total=len(requested), completed=done)

        def advance(records: int = 0) -> None:
            if group is None:
                progress.update(task, advance=records)
            else:
                progress.update(task, completed=min(done + group.made(records), len(requested)))

        def line() -> str:
            completed = int(progress.tasks[0].completed)
            so_far = f"{completed:,} of {len(requested):,} records"
            return f"{', '.join(filter(None, (so_far, left(estimate))))}: {run.stage.text}"

        with lines(line):
            for record in records:
                if isinstance(record, Failure):
                    failures.append(record)
                    warn(str(record))
                    estimate.made({"sample": record.sample})
                    continue
                advance(1)
                spent.add(record)
                of_sample.setdefault(record["sample"], []).append(record)
                if estimate.made(record):
                    warn_of_dominant(of_sample.pop(record["sample"]), estimate)
                yield record
            if group is not None and group.first:
                run.stage.text = "waiting for the other processes"
                group.wait(advance)
            run.stage.text = f"{count(len(samples), 'sample')} × {count(len(run.settings), 'setting')}"
    if line_of_times := spent.line(time.perf_counter() - began):
        warn(line_of_times)


def left(estimate: Estimate) -> str:
    if not estimate.ahead:
        return ""
    part = f" of {estimate.part}" if estimate.part else ""
    words = f"measuring the time left{part}" if estimate.measuring else f"{about(estimate)} left{part}"
    return f"{words}, {estimate.rate}" if estimate.rate else words


def about(estimate: Estimate) -> str:
    """The time that is left: a range until the finished samples agree."""
    low, high = estimate.span()
    return f"about {duration(high)}" if duration(low) == duration(high) else f"{duration(low)} to {duration(high)}"


def announce(estimate: Estimate) -> None:
    """Print a line about the whole run, or its part, before it starts, if it takes long."""
    if not (estimate.long and estimate.costs):
        return
    tokens = sorted(estimate.tokens.values())
    length = f"{tokens[0]:,}" if tokens[0] == tokens[-1] else f"{tokens[0]:,} to {tokens[-1]:,}"
    records = sum(cost.records for cost in estimate.costs.values())
    part = f"{estimate.part}: " if estimate.part else ""
    warn(
        f"{part}{count(records, 'record')} to make from {count(len(tokens), 'prompt')} of about {length} tokens; the "
        "time is measured with the first"
    )


def warn_of_dominant(records: Sequence[dict[str, Any]], estimate: Estimate) -> None:
    """Warn, once in a run, if one setting takes most of the time."""
    slowest, ahead = None if estimate.warned else dominant(records), estimate.left()
    if slowest is None or slowest[1] * ahead < LONG:
        return
    estimate.warned = True
    setting, share = slowest
    warn(
        f"{setting!r} takes {share:.0%} of the time: about {duration(ahead)} are left, and about "
        f"{duration((1 - share) * ahead)} without it"
    )


@contextmanager
def lines(line: Callable[[], str]) -> Iterator[None]:
    """Print `line()` repeatedly within the block, unless a terminal has the bar.

    A notebook has one line, replaced every EVERY_IN_CELL seconds and at the end; elsewhere one is added every EVERY
    seconds.
    """
    if err.is_terminal or err.quiet:
        yield
        return
    say, every = (in_cell(), EVERY_IN_CELL) if err.is_jupyter else (warn, EVERY)
    ended = Event()

    def speak() -> None:
        while not ended.wait(every):
            say(line())

    thread = Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if err.is_jupyter:
            say(line())
