"""The record of one setting at one place of the grid: medians of its repeats, their spread, and counted bytes."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median, quantiles

from kvbench.benchmarks import Sample
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.evaluation.record import Run, identity
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed.measure import Turn

DECIMALS = 6


def times(turn: Turn, batch: int) -> dict[str, float | None]:
    """Seconds of one turn by name.

    first_token is of one sequence: prefill and compression. latency is of the whole batch, whose prompts would be
    prefilled one after the other.
    """
    first = turn.prefill_seconds + turn.compress_seconds
    return {
        "prefill": turn.prefill_seconds,
        "compress": turn.compress_seconds,
        "allocation": turn.allocation_seconds,
        "first_token": first,
        "decode": turn.decode_seconds,
        "latency": batch * first + turn.decode_seconds,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest, largest and interquartile range (inclusive, 0 for a single value)."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    told = {"median": median(values), "min": min(values), "max": max(values), "iqr": high - low}
    return {name: round(value, DECIMALS) for name, value in told.items()}


def record(
    run: Run, sample: Sample, setting: Setting, batch: int, look: Turn | None, turns: Sequence[Turn], told: dict
) -> dict:
    """What became of a setting: `look` is its turn of one sequence, `turns` are the repeats with `batch` sequences.

    No turns: the batch does not fit; no look: not even one sequence does. `told` is what the rounds add.
    """
    every = [times(turn, batch) for turn in turns]
    names = [name for name in (every[0] if every else {}) if every[0][name] is not None]
    repeats = {name: [round(each[name], DECIMALS) for each in every] for name in names}
    spreads = {name: spread([each[name] for each in every]) for name in names}
    seconds = {f"{name}_seconds": spreads[name]["median"] if name in spreads else None for name in TIMES}
    decoded = batch * turns[0].decode_steps if turns else 0
    return {
        **identity(run, sample, setting),
        **sample.meta,
        "question": run.question,
        "compress_at": setting.method.compress_at,
        "prompt_tokens": sample.meta["length"],
        "scores": {},
        "fits": bool(turns),
        "sequences": batch if turns else None,
        **_counted(look, setting, sample.meta["length"]),
        **_held(look, batch if turns else 0),
        "peak_device_bytes": max((t.peak_device_bytes for t in turns if t.peak_device_bytes), default=None),
        **seconds,
        "decode_steps": turns[0].decode_steps if turns else None,
        "decode_tokens_per_s": round(decoded / seconds["decode_seconds"], 3) if turns else None,
        "spread_seconds": spreads,
        "repeats_seconds": repeats,
        "stacked_layers": turns[0].stacked_layers if turns else None,
        "tokens": list(turns[0].tokens[0]) if turns else None,
        **told,
    }


TIMES = ("prefill", "compress", "allocation", "first_token", "decode", "latency")


def _counted(look: Turn | None, setting: Setting, n: int) -> dict:
    """What one sequence holds, as in every record of kvbench."""
    if look is None:
        return {}
    one = look.footprint
    return {
        "floored": setting.tokens(n, len(look.layers)) > setting.asked(n),
        **asdict(ReserveRatio.of(look.layers, one.kept, one.full)),
        "stored_bytes": one.kept,
        "full_bytes": one.full,
        "memory": look.memory,
    }


def _held(look: Turn | None, batch: int) -> dict:
    """What a batch holds; nothing where it does not fit."""
    one = look.footprint if look is not None and batch else None
    return {
        "prefilled_bytes": one and batch * one.prefilled,
        "decoded_bytes": one and batch * one.decoded,
        "peak_cache_bytes": one and one.peak_of(batch),
    }
