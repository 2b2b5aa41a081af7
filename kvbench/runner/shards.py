"""Which samples a run evaluates, and the keys of the records that they make."""

from collections import Counter
from collections.abc import Sequence

from kvbench.benchmarks import Sample
from kvbench.evaluation.prompts import together
from kvbench.evaluation.record import AnyRun


def first_of_each_task(samples: Sequence[Sample], limit: int | None) -> list[Sample]:
    """The first `limit` samples of every task, in their order; all for None."""
    seen: Counter[str | None] = Counter()
    chosen = []
    for sample in samples:
        seen[task := sample.meta.get("task")] += 1
        if limit is None or seen[task] <= limit:
            chosen.append(sample)
    return chosen


def samples_of_shard(samples: Sequence[Sample], question: str, shard: int, shards: int) -> list[Sample]:
    """The samples of one of `shards` parts. Those that may share a context are in one shard, under all settings."""
    groups = together(samples, question)[shard::shards]
    return [sample for group in groups for sample in group]


def requested_keys(run: AnyRun, samples: Sequence[Sample]) -> set[str]:
    """The keys of all records that samples and settings make."""
    return {run.key(sample, setting) for sample in samples for setting in run.settings}
