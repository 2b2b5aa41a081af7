"""The columns of a published item: each has the scores of some tasks, or a measure of the records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from kvbench.benchmarks import Benchmark
from kvbench.errors import UserError, unknown
from kvbench.metrics.aggregate import tasks_of, tokens_per_s, units
from kvbench.records.served_bytes import served_bytes
from kvbench.utils.targets import TARGET, class_of

ALL = "*"  # the records of every task: a needle's score is the mean over its grid

AVERAGE, NEEDLE = "average", "needle"

HEADERS = {"kv_compression": "KV cache", "layer_compression": "layers", "tokens_per_s": "tokens/s"}


@dataclass(frozen=True)
class Column:
    """One column: the mean over `tasks`, the mean over other columns `parts`, or a measure of a row's records.

    name    name in the published data.
    whole   whether it has all tasks of the published column.
    header  its abbreviation in a table; empty: its name.
    """

    name: str
    tasks: tuple[str, ...] = ()
    parts: tuple["Column", ...] = ()
    measure: Callable[[pd.DataFrame], float] | None = None
    whole: bool = True
    header: str = ""

    @property
    def short(self) -> str:
        """The header in a table."""
        if self.name == AVERAGE and not self.whole:
            return f"average of {len(self.parts)}"
        return self.header or self.name

    @property
    def every_task(self) -> list[str]:
        return [*self.tasks, *(task for column in self.parts for task in column.tasks)]

    @property
    def strata(self) -> list[str]:
        """Tasks whose plain mean is the column's: a task of a part with few tasks stands there more than once."""
        parts = [part.tasks for part in self.parts] or [self.tasks]
        often = lcm(*map(len, parts))
        return [task for tasks in parts if tasks for task in tasks * (often // len(tasks))]


def kv_compression(records: pd.DataFrame) -> float:
    """Bytes of FullKV's cache over the bytes of the compressed cache."""
    return 1 / served_bytes(records).mean()


def layer_compression(records: pd.DataFrame) -> float:
    """Layers over layers that keep every token; two layers that share one store (MiniCache) count as one."""
    layers = [
        r2 * fmean(kept >= n for kept in layers)
        for layers, n, r2 in zip(records["kept_per_layer"], records["prompt_tokens"], records["r2"], strict=True)
    ]
    return 1 / fmean(layers) if any(layers) else float("nan")


MEASURES = {
    "kv_compression": kv_compression,
    "layer_compression": layer_compression,
    "tokens_per_s": tokens_per_s,
}
OTHERS = (*MEASURES, NEEDLE, AVERAGE)  # columns that are no tasks


def columns(
    names: Sequence[str],
    benchmark: Mapping[str, Any],
    published_benchmark: Mapping[str, Any],
    recorded: Sequence[str] = (),
) -> list[Column]:
    """The columns for `names` of tasks, task sets, kinds of tasks, and measures.

    `benchmark` is the configuration of the records, `published_benchmark` the configuration in the item's file.
    `recorded` are the tasks of the records: those of a benchmark that does not know its tasks beforehand. Columns
    whose tasks were not requested are left out. Raises UserError for an unknown name, and where no column is left.
    """
    known = _Names.of([named_class(published_benchmark), named_class(benchmark)], recorded)
    each = known.single(names)
    requested = requested_tasks(benchmark)
    tasks = requested or list(recorded)
    scored = [known.column(name, tasks) for name in each if name not in OTHERS]
    available = {column.name: column for column in scored if column.tasks}
    if scored:
        average = Column(AVERAGE, parts=tuple(available.values()), whole=all(column.whole for column in scored))
    else:  # only the average, over all tasks
        parts = tuple(Column(task, (task,)) for task in tasks)
        average = Column(AVERAGE, parts=parts, whole=set(requested_tasks(published_benchmark)) <= set(tasks))
    available |= {name: Column(name, measure=measure, header=HEADERS[name]) for name, measure in MEASURES.items()}
    available |= {NEEDLE: Column(NEEDLE, (ALL,))} | ({AVERAGE: average} if average.parts else {})
    shown = [available[name] for name in each if name in available]
    if names and not shown:
        who = f"benchmark.tasks={','.join(requested)} has" if requested else "the records have"
        raise UserError(f"{who} no task of the item's columns: {', '.join(each)}")
    return shown


class _Names(NamedTuple):
    """The names of tasks that columns may have (kvbench.benchmarks.planned.Planned)."""

    sets: Mapping[str, Sequence[str]]
    means: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]

    @classmethod
    def of(cls, kinds: Sequence[type[Benchmark]], recorded: Sequence[str]) -> "_Names":
        """Those of several benchmarks, and the tasks of records; of a name of several benchmarks the first's."""
        joined = cls({task: (task,) for task in recorded}, {}, {})
        for kind in reversed(kinds):
            joined = cls(
                {**joined.sets, **kind.task_sets},
                {**joined.means, **kind.task_means},
                {**joined.headers, **kind.headers},
            )
        return joined

    def single(self, names: Sequence[str]) -> list[str]:
        """The names of columns, each once, with a name for each task of a set. Raises UserError for an unknown name."""
        alone = (*OTHERS, *self.means)
        for name in names:
            if name not in alone and name not in self.sets:
                raise unknown("column in experiment.columns", name, dict.fromkeys((*alone, *self.sets)))
        return list(dict.fromkeys(one for name in names for one in ((name,) if name in alone else self.sets[name])))

    def column(self, name: str, requested: Sequence[str]) -> Column:
        """The column of a task, or of the mean of several, with its requested tasks."""
        members = self.means.get(name, (name,))
        tasks = tuple(task for task in members if task in requested)
        return Column(name, tasks, whole=len(tasks) == len(members), header=self.headers.get(name, ""))


def named_class(benchmark: Mapping[str, Any]) -> type[Benchmark]:
    """The class of a benchmark's configuration; nothing else that it names is imported: a manifest's place of the data
    may name another class."""
    return class_of({TARGET: benchmark[TARGET]}, "benchmark", Benchmark)


def requested_tasks(benchmark: Mapping[str, Any]) -> list[str]:
    """The tasks that a benchmark's configuration selects; [] for a benchmark that does not know them beforehand."""
    names = benchmark.get("tasks")
    return [] if names is None else named_class(benchmark).tasks_of(names)


Scores = dict[str, pd.Series]  # task -> scores from 0 to 1, by sample; ALL -> scores of all tasks


def drawn(records: pd.DataFrame) -> dict[str, str]:
    """The independently drawn unit of each sample (kvbench.metrics.aggregate.units)."""
    return dict(zip(records["sample"], units(records), strict=True))


def scores(records: pd.DataFrame) -> Scores:
    """The first score of every record, by which tables compare."""
    first = pd.Series(
        [next(iter(scores.values())) for scores in records["scores"]], list(records["sample"]), dtype=float
    )
    tasks = tasks_of(records).to_numpy()
    return {task: first[tasks == task] for task in dict.fromkeys(tasks)} | ({ALL: first} if len(first) else {})
