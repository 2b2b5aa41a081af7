"""The record of one load of one engine: means over repeats, their intervals, and the reports behind them."""

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from kvbench.benchmarks import Sample
from kvbench.benchmarks.serve import Serve
from kvbench.engines.record import EngineRun
from kvbench.engines.serving.figures import FIGURES, Measured
from kvbench.engines.settings import EngineSetting
from kvbench.evaluation.record import identity
from kvbench.metrics.aggregate import POSITIVE
from kvbench.metrics.bootstrap import interval
from kvbench.records.schema import build
from kvbench.utils.hashing import file_hash


class Repeat(NamedTuple):
    measured: Measured
    report: Path
    capacity: Mapping[str, float]  # the maximum of each of the server's gauges
    load_average: float  # of the measuring machine, before the load
    sent: float  # mean of the prompts' tokens by kvbench's count


def record(
    run: EngineRun, benchmark: Serve, sample: Sample, setting: EngineSetting, repeats: Sequence[Repeat]
) -> dict[str, Any]:
    measured = [repeat.measured for repeat in repeats]
    every = {name: [result.figures[name] for result in measured if name in result.figures] for name in FIGURES}
    every = {name: values for name, values in every.items() if len(values) == len(measured)}
    fields = {
        **identity(run, sample, setting),
        **sample.meta,
        "question": run.question,
        "prompt_tokens": round(fmean(every.get("prompt_tokens") or [repeat.sent for repeat in repeats])),
        "scores": {},
        "tool": measured[0].tool,
        "requested": {
            name: getattr(benchmark, name) for name in ("requests", "warmup", "new_tokens", "fresh", "seconds")
        },
        "limits": benchmark.limits,
        "answered": sum(result.answered for result in measured),
        "failed": sum(result.failed for result in measured),
        "unfinished": sum(result.unfinished for result in measured),
        "first_error": next((result.error for result in measured if result.error), ""),
        "figures": {name: fmean(values) for name, values in every.items()},
        "intervals": {name: ends for name, values in every.items() if (ends := over_repeats(values))},
        "repeats": every,
        "capacity": _most([repeat.capacity for repeat in repeats]),
        "reports": {repeat.report.name: file_hash(repeat.report) for repeat in repeats},
        "load_average": [round(repeat.load_average, 2) for repeat in repeats],
    }
    return build("serve", fields)


def over_repeats(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of the mean over repeats; None for one repeat, and for equal repeats."""
    bounds = interval(values, POSITIVE)
    return None if isnan(bounds.low) else [bounds.low, bounds.high]


def _most(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for gauges in each for name in gauges)
    return {name: max(gauges[name] for gauges in each if name in gauges) for name in names}
