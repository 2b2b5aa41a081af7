"""The samples that a run evaluates, and the keys of their records."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.benchmarks import Sample
from kvbench.evaluation.prompts import together
from kvbench.evaluation.record import AnyRun
from kvbench.records.store import shard_name
from kvbench.utils.console import warn


def first_of_each_task(samples: Sequence[Sample], limit: int | None) -> list[Sample]:
    """The first `limit` samples of every task, in their order; all for None."""
    counts: Counter[str | None] = Counter()
    chosen = []
    for sample in samples:
        counts[task := sample.meta.get("task")] += 1
        if limit is None or counts[task] <= limit:
            chosen.append(sample)
    return chosen


def warn_of_lengths(
    lengths: Sequence[object], every: Sequence[Sample], chosen: Sequence[Sample], limit: int | None
) -> None:
    """Warn of the requested `lengths` that only samples beyond the limit have: `chosen` are those of `every` within."""
    all_lengths, kept = ({sample.meta.get("length") for sample in samples} for samples in (every, chosen))
    if lost := [f"{length}" for length in lengths if length in all_lengths - kept]:
        warn(
            f"limit={limit} takes the first samples of every task, and none of these has the length "
            f"{' or '.join(lost)}: run it alone (benchmark.lengths={lost[0]}), or raise the limit"
        )


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of the samples, which a process makes under all settings."""

    number: int  # from 0
    count: int

    @property
    def name(self) -> str:
        """The name of the process's own files."""
        return shard_name(self.number, self.count)

    def samples(self, samples: Sequence[Sample], question: str, limit: int | None = None) -> list[Sample]:
        """Its part of the first `limit` samples of every task; samples that may share a context are in one shard.

        `samples` are all of the benchmark's. The limit does not decide which shard has a sample, so that processes with
        other limits, which write to the same folder, make no record twice. Each task begins at the next shard: all
        shards have about as many samples of it, and of every limit.
        """
        chosen = {sample.id for sample in first_of_each_task(samples, limit)}
        tasks: dict[object, int] = {}  # by name, the shard of the task's next group
        own = []
        for group in together(samples, question):
            shard = tasks.setdefault(task := group[0].meta.get("task"), len(tasks))
            tasks[task] += 1
            if shard % self.count == self.number:
                own += [sample for sample in group if sample.id in chosen]
        return own


def requested_keys(run: AnyRun, samples: Sequence[Sample]) -> set[str]:
    """The keys of the records of all samples under all settings."""
    return {run.key(sample, setting) for sample in samples for setting in run.settings}
