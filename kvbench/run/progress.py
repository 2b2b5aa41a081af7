"""The progress bar of a run, on standard error."""

from collections.abc import Iterable, Iterator, Sequence

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kvbench.benchmarks import Sample
from kvbench.evaluation.record import Failure, Run
from kvbench.records.store import Store
from kvbench.run.shards import requested_keys
from kvbench.run.torchrun import Group
from kvbench.utils.console import err, warn
from kvbench.utils.text import count

COLUMNS = (
    TextColumn("{task.description}", markup=False),  # ids are data
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("records"),
    TimeElapsedColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
)


def with_progress(
    records: Iterable[dict | Failure],
    run: Run,
    samples: Sequence[Sample],
    store: Store,
    failures: list[Failure],
    group: Group | None = None,
) -> Iterator[dict]:
    """Yield `records` and count them, with those of an earlier run, beside all that settings and samples make.

    Failures are reported as they come, collected in `failures`, and not yielded. In a `group` the records of all
    processes count, and the first process waits for the others.
    """
    requested = requested_keys(run, samples)
    done = len(requested & store.done)
    if done:
        warn(f"{done} of {len(requested)} records are there already and are not made again")
    with Progress(*COLUMNS, console=err) as progress:
        task = progress.add_task(run.benchmark.name, total=len(requested), completed=done)

        def advance(records: int = 0) -> None:
            if group is None:
                progress.update(task, advance=records)
            else:
                progress.update(task, completed=min(done + group.made(records), len(requested)))

        for record in records:
            if isinstance(record, Failure):
                failures.append(record)
                warn(str(record))
                continue
            advance(1)
            progress.update(task, description=f"{record['sample']} · {record['setting']}")
            yield record
        if group is not None and group.first:
            group.wait(advance)
        progress.update(task, description=f"{count(len(samples), 'sample')} × {count(len(run.settings), 'setting')}")
