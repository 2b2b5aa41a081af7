"""The columns of a published item: each has the scores of some tasks, or a measure of the records."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from statistics import fmean
from typing import Any

import pandas as pd

from kvbench.benchmarks import Benchmark
from kvbench.benchmarks.longbench import tasks as longbench
from kvbench.benchmarks.ruler import tasks as ruler
from kvbench.errors import UserError, unknown
from kvbench.metrics.aggregate import tokens_per_s, units
from kvbench.records.served_bytes import served_bytes
from kvbench.utils.targets import TARGET, class_of

ALL = "*"  # the records of every task: a needle's score is the mean over its grid

AVERAGE, NEEDLE = "average", "needle"

# LongBench's abbreviations, and the papers' abbreviations for RULER. All other columns have their names as headers.
SHORT = dict(
    pair.split("=")
    for pair in """
    narrativeqa=NrtvQA qasper=Qasper multifieldqa_en=MF-en multifieldqa_zh=MF-zh hotpotqa=HotpotQA 2wikimqa=2WikiMQA
    musique=Musique dureader=DuReader gov_report=GovReport qmsum=QMSum multi_news=MultiNews vcsum=VCSUM trec=TREC
    triviaqa=TriviaQA samsum=SAMSum lsht=LSHT passage_count=PCount passage_retrieval_en=PRe passage_retrieval_zh=PRz
    lcc=LCC repobench-p=RB-P niah_single=NIAH-S niah_multikey=NIAH-MK niah_multivalue=NIAH-MV niah_multiquery=NIAH-MQ
    cwe=CWE fwe=FWE qa=QA vt=VT layer_compression=layers tokens_per_s=tokens/s
    """.split()
) | {"kv_compression": "KV cache"}


@dataclass(frozen=True)
class Column:
    """One column: the mean over `tasks`, the mean over other columns `parts`, or a measure of a row's records.

    name   name in the published data.
    whole  whether it has all tasks of the published column.
    """

    name: str
    tasks: tuple[str, ...] = ()
    parts: tuple["Column", ...] = ()
    measure: Callable[[pd.DataFrame], float] | None = None
    whole: bool = True

    @property
    def short(self) -> str:
        """The header in a table."""
        if self.name == AVERAGE and not self.whole:
            return f"average of {len(self.parts)}"
        return SHORT.get(self.name, self.name)

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


def columns(names: Sequence[str], benchmark: Mapping[str, Any], published_benchmark: Mapping[str, Any]) -> list[Column]:
    """The columns for `names` of tasks, task sets, kinds of tasks, and measures.

    `benchmark` is the configuration of the records, `published_benchmark` the configuration in the item's file. Columns
    whose tasks were not requested are left out. Raises UserError for an unknown name, and where no column is left.
    """
    tasks = requested_tasks(benchmark)
    names = list(dict.fromkeys(name for group in names for name in _expand(group)))
    scored = [_scored(name, tasks) for name in names if name not in (*MEASURES, NEEDLE, AVERAGE)]
    available = {column.name: column for column in scored if column.tasks}
    if scored:
        average = Column(AVERAGE, parts=tuple(available.values()), whole=all(column.whole for column in scored))
    else:  # only the average, over all tasks
        parts = tuple(Column(task, (task,)) for task in tasks)
        average = Column(AVERAGE, parts=parts, whole=set(requested_tasks(published_benchmark)) <= set(tasks))
    available |= {name: Column(name, measure=measure) for name, measure in MEASURES.items()}
    available |= {NEEDLE: Column(NEEDLE, (ALL,))} | ({AVERAGE: average} if average.parts else {})
    shown = [available[name] for name in names if name in available]
    if names and not shown:
        raise UserError(f"benchmark.tasks={','.join(tasks)} has no task of the item's columns: {', '.join(names)}")
    return shown


def _scored(name: str, requested: Sequence[str]) -> Column:
    """The column of a task, or of a kind of tasks (niah_single: niah_single_1 to 3; niah: all of RULER's needles), with
    its requested tasks."""
    known = [*longbench.TASKS, *ruler.TASKS]
    numbered = [task for task in known if re.fullmatch(rf"{re.escape(name)}(_\d+)?", task)]
    members = numbered or [task for task, its in ruler.TASKS.items() if its.kind == name]
    if not members:
        raise unknown("column in experiment.columns", name, [*MEASURES, NEEDLE, AVERAGE, *longbench.SETS, *known])
    tasks = tuple(task for task in members if task in requested)
    return Column(name, tasks, whole=len(tasks) == len(members))


def requested_tasks(benchmark: Mapping[str, Any]) -> list[str]:
    """The tasks that a benchmark's configuration selects; [] for a benchmark without a selection of tasks."""
    if (names := benchmark.get("tasks")) is None:
        return []
    # of the class alone: a manifest's place of the data may name another one
    kind: type[Benchmark] = class_of({TARGET: benchmark[TARGET]}, "benchmark", Benchmark)
    return kind.tasks_of([names] if isinstance(names, str) else names)


def _expand(name: str) -> tuple[str, ...]:
    """The tasks of one of LongBench's sets or groups; any other name as a set of one."""
    return {**longbench.GROUPS, **longbench.SETS}.get(name, (name,))


Scores = dict[str, pd.Series]  # task -> scores from 0 to 1, by sample; ALL -> scores of all tasks


def drawn(records: pd.DataFrame) -> dict[str, str]:
    """The independently drawn unit of each sample (kvbench.metrics.aggregate.units)."""
    return dict(zip(records["sample"], units(records), strict=True))


def scores(records: pd.DataFrame) -> Scores:
    """The first score of every record, by which tables compare."""
    first = pd.Series(
        [next(iter(scores.values())) for scores in records["scores"]], list(records["sample"]), dtype=float
    )
    tasks = records["task"].to_numpy()
    return {task: first[tasks == task] for task in dict.fromkeys(tasks)} | ({ALL: first} if len(first) else {})
