"""Measures the settings of a speed run in rounds, whose order of settings rotates by one from round to round."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from kvbench.benchmarks import Sample
from kvbench.benchmarks.speed import LARGEST, Speed
from kvbench.evaluation.record import MethodRun
from kvbench.evaluation.recorded_steps import FEWEST
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.conditions import conditions
from kvbench.evaluation.speed.largest_batch import MemoryLimit
from kvbench.evaluation.speed.measure import Measurement, attempt
from kvbench.evaluation.speed.record import record
from kvbench.records.store import Store
from kvbench.utils.signals import unbroken

# Tokens decoded in a warm-up round, enough to make everything that is made at its first use. Four are chosen before a
# step is recorded: by the prefill, perhaps by `first_decode`, by a step that Python launches, and by one that compiles
# the layers. A step is recorded only if at least `FEWEST` more follow.
WARM_TOKENS = 4 + FEWEST


@dataclass(frozen=True)
class FirstMeasurement:
    """One sequence of a setting at one prompt length, measured before the rounds; it warms up, too."""

    measurement: Measurement | None  # None: not even one sequence fits
    largest: int | None  # the largest batch; None: not searched for


@dataclass
class Series:
    """The repeated measurements of one setting at one point of the grid (length, batch, new tokens)."""

    setting: Setting
    first: FirstMeasurement
    batch: int  # 0: does not fit
    measurements: list[Measurement] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # the setting's index in the order of each counted round


def evaluate(run: MethodRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any]]:
    """Make and store every missing record, one point of the grid at a time; yields each once it is on disk.

    All repeats of a record come from one process: a killed run measures unfinished points of the grid again.
    """
    limit = MemoryLimit(run.loaded.model, _speed(run).memory_gib)
    firsts: dict[tuple[Any, ...], FirstMeasurement] = {}
    with limit.enforced(), little_to_collect():
        for sample in samples:
            settings = [setting for setting in run.settings if run.key(sample, setting) not in store.done]
            for fields in rounds(run, limit, sample, settings, firsts) if settings else []:
                with unbroken():
                    store.append(fields)
                yield fields


def rounds(
    run: MethodRun,
    limit: MemoryLimit,
    sample: Sample,
    settings: Sequence[Setting],
    firsts: dict[tuple[Any, ...], FirstMeasurement],
) -> Iterator[dict[str, Any]]:
    """The records of one point of the grid.

    `firsts` caches first measurements by setting, length and new tokens: points that differ in the batch share them.
    """
    model, benchmark, new_tokens = run.loaded.model, _speed(run), sample.meta["new_tokens"]
    ids = torch.tensor(benchmark.ids(run.loaded.tokenizer, sample.meta["length"]))
    for setting in settings:
        key = (setting.label, len(ids), new_tokens)
        if key not in firsts:
            firsts[key] = first_measurement(run, limit, ids, setting, new_tokens)
    series = []
    for setting in settings:
        first = firsts[setting.label, len(ids), new_tokens]
        series.append(Series(setting, first, batch_of(limit, sample.meta["batch"], first)))
    before, engine = conditions(), run.decode_engine
    for number in range(benchmark.warmup + benchmark.repeats):
        warm = number < benchmark.warmup
        tokens = min(new_tokens, WARM_TOKENS) if warm else new_tokens
        for place, item in enumerate(rotated(series, number)):
            if not item.batch:
                continue
            counted = f"round {number - benchmark.warmup + 1} of {benchmark.repeats}"
            run.stage.text = f"{sample.id} · {item.setting.label}, {'warm-up' if warm else counted}"
            measured = attempt(model, ids, item.setting, item.batch, tokens, item.first.measurement.footprint, engine)
            if measured is None:
                item.batch = 0
                item.measurements.clear()
            elif not warm:
                item.measurements.append(measured)
                item.places.append(place)
    shared = {
        "largest_how": limit.how,
        "conditions": {"before": before, "after": conditions()},
        "beside": [setting.label for setting in settings],
    }
    for item in series:
        more = {"largest_batch": item.first.largest, "places": item.places, **shared}
        yield record(run, sample, item.setting, item.batch, item.first.measurement, item.measurements, more)


def first_measurement(
    run: MethodRun, limit: MemoryLimit, ids: Tensor, setting: Setting, new_tokens: int
) -> FirstMeasurement:
    """Measure one sequence with the prompt ids [n], and search for the largest batch if the benchmark requests it."""
    measured = attempt(run.loaded.model, ids, setting, 1, new_tokens, None, run.decode_engine)
    if measured is None:
        return FirstMeasurement(None, 0)
    benchmark = _speed(run)
    if not benchmark.largest and LARGEST not in benchmark.batches:
        return FirstMeasurement(measured, None)
    return FirstMeasurement(measured, limit.largest(ids, setting, new_tokens, measured.footprint, run.decode_engine))


def _speed(run: MethodRun) -> Speed:
    assert isinstance(run.benchmark, Speed), "rounds are those of benchmark=speed"
    return run.benchmark


def batch_of(limit: MemoryLimit, requested: int | Literal["largest"], first: FirstMeasurement) -> int:
    """Sequences to measure with; 0 if they do not fit."""
    if first.measurement is None:
        return 0
    if requested == "largest":
        return first.largest or 0
    return requested if limit.holds(requested, first.measurement.footprint) else 0


@contextmanager
def little_to_collect() -> Iterator[None]:
    """Exclude existing objects from garbage collection, which runs before every measurement.

    Afterwards they are collected again, unless the caller had excluded some of them before.
    """
    before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not before:
            gc.unfreeze()


def rotated(series: Sequence[Any], number: int) -> list[Any]:
    """The series in the order of round `number`: each round moves the first one to the end."""
    start = number % len(series)
    return [*series[start:], *series[:start]]
