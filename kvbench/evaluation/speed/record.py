"""The record of one setting at one place of the grid: medians of its repeats, their spread, and counted bytes."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median, quantiles
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.evaluation.record import MethodRun, identity, present
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.measure import Measurement
from kvbench.records.schema import build

DECIMALS = 6


def times(measurement: Measurement, batch: int) -> dict[str, float | None]:
    """Seconds of one measurement by name.

    first_token is of one sequence: prefill and compression. latency is of the whole batch, whose prompts would be
    prefilled one after the other.
    """
    first = measurement.prefill_seconds + measurement.compress_seconds
    return {
        "prefill": measurement.prefill_seconds,
        "compress": measurement.compress_seconds,
        "allocation": measurement.allocation_seconds,
        "first_token": first,
        "decode": measurement.decode_seconds,
        "latency": batch * first + measurement.decode_seconds,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest, largest and interquartile range (inclusive, 0 for a single value)."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    figures = {"median": median(values), "min": min(values), "max": max(values), "iqr": high - low}
    return {name: round(value, DECIMALS) for name, value in figures.items()}


def record(
    run: MethodRun,
    sample: Sample,
    setting: Setting,
    batch: int,
    first: Measurement | None,
    measurements: Sequence[Measurement],
    more: dict[str, Any],
) -> dict[str, Any]:
    """The record of a setting from its `measurements` with `batch` sequences and its `first` one of one sequence.

    No measurements: the batch does not fit. No first measurement: not even one sequence fits. `more`: other fields.
    """
    repeated = [times(measurement, batch) for measurement in measurements]
    names = [name for name in (repeated[0] if repeated else {}) if repeated[0][name] is not None]
    measured = {name: [value for seconds in repeated if (value := seconds[name]) is not None] for name in names}
    repeats = {name: [round(value, DECIMALS) for value in values] for name, values in measured.items()}
    spreads = {name: spread(values) for name, values in measured.items()}
    seconds = {f"{name}_seconds": spreads[name]["median"] if name in spreads else None for name in TIMES}
    decoded = batch * measurements[0].decode_steps if measurements else 0
    fields = {
        **identity(run, sample, setting),
        **sample.meta,
        "question": run.question,
        "compress_at": setting.method.compress_at,
        "prompt_tokens": sample.meta["length"],
        "scores": {},
        "fits": bool(measurements),
        "sequences": batch if measurements else None,
        **_counted(first, setting, sample.meta["length"]),
        **_held(first, batch if measurements else 0),
        **(asdict(measurements[0].figures) if measurements else {}),
        "peak_device_bytes": max((t.peak_device_bytes for t in measurements if t.peak_device_bytes), default=None),
        **seconds,
        "decode_steps": measurements[0].decode_steps if measurements else None,
        "decode_tokens_per_s": round(decoded / spreads["decode"]["median"], 3) if measurements else None,
        "spread_seconds": spreads,
        "repeats_seconds": repeats,
        "decode_engine": measurements[0].engine if measurements else None,
        "stacked_layers": measurements[0].stacked_layers if measurements else None,
        "tokens": list(measurements[0].tokens[0]) if measurements else None,
        **more,
    }
    return build("speed", fields)


TIMES = ("prefill", "compress", "allocation", "first_token", "decode", "latency")


def _counted(first: Measurement | None, setting: Setting, n: int) -> dict[str, Any]:
    """The counted bytes of one sequence, as in every record of kvbench."""
    if first is None:
        return {}
    footprint = first.footprint
    ratio = ReserveRatio.from_layers(
        first.layers, footprint.kept - footprint.windows, footprint.full - footprint.windows
    )
    return {
        "floored": setting.floored(n, len(first.layers)),
        "target_missed": setting.method.missed(ratio, setting.requested_tokens(n) / n),
        **ratio.fields(footprint.windows),
        **present(state_bytes=footprint.states or None),
        "stored_bytes": footprint.kept,
        "full_bytes": footprint.full,
        "memory": first.memory,
    }


def _held(first: Measurement | None, batch: int) -> dict[str, Any]:
    """The bytes of a batch; empty if it does not fit."""
    footprint = first.footprint if first is not None and batch else None
    return {
        "prefilled_bytes": footprint and batch * footprint.prefilled,
        "decoded_bytes": footprint and batch * footprint.decoded,
        "peak_cache_bytes": footprint and footprint.peak_of(batch),
    }
