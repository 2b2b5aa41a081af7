"""A record compared with its rerun: the differences, and whether rounding could explain them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvbench.records.schema import MethodRecord
from kvbench.utils.numbers import is_number
from kvbench.utils.sequences import common_prefix

Record = Mapping[str, Any]

_UNITS = {name: field.json_schema_extra for name, field in MethodRecord.model_fields.items()}
TIMES = {name for name, extra in _UNITS.items() if isinstance(extra, dict) and extra.get("unit") == "s"}
# Fields that depend on a machine, a run or the batch, and not on model, sample and setting alone.
OF_A_MACHINE = TIMES | {
    *("key", "run", "checksum", "decode_batch", "decode_engine", "peak_device_bytes"),
    *("close_call", "close_cuts"),  # what rounding could change on that machine
}
# Fields that depend on the generated tokens: their text and scores, and the bytes that caches held meanwhile.
OF_AN_ANSWER = frozenset(
    {"tokens", "prediction", "scores", "distance", "peak_cache_bytes", "triggers"}
    | {"r_mean", "r_peak", "r_end", "r_read"}
)
# Peaks, in which earlier commits left out windows and copies that are held for a moment: a smaller one can be honest.
COUNTED_LESS = frozenset({"peak_cache_bytes", "r_peak"})
BEFORE_ANSWERS = ("in_prefill", "prefill_end")  # compress_at of prompts whose compression no generated token changes
EQUAL = {"distance": 1e-5}  # nats, from sums over a vocabulary in float32
SLACK = 4.0  # times the largest change by different rounding on this machine


class Differences(NamedTuple):
    """A line for each field that differs: impossible differences, and differences that rounding can explain."""

    wrong: list[str]
    open: list[str]


def differing(record: Record, again: Record) -> set[str]:
    """The fields in which a record and its rerun differ, of those that both have and no machine decides."""
    names = (record.keys() & again.keys()) - OF_A_MACHINE
    differ = {name for name in names if apart(record[name], again[name]) > EQUAL.get(name, 1e-9)}
    return {name for name in differ if not of_answer(name)} | {"tokens"} if "tokens" in differ else differ


def judge(record: Record, again: Record, variants: Sequence[Record]) -> Differences:
    """The fields that differ, judged by `variants`: the same record with the model's sums rounded differently."""
    differ = differing(record, again)
    wrong: list[str] = []
    unsure: list[str] = []
    if "tokens" in differ:
        tokens = record["tokens"] or []
        place = common_prefix(tokens, again["tokens"])
        line = f"token {place} is {_at(tokens, place)}, and {_at(again['tokens'], place)} when made again"
        close = again.get("close_call")
        rounding = (close is not None and close <= place) or any(
            variant["tokens"] != again["tokens"] for variant in variants
        )
        (unsure if rounding else wrong).append(line)
        if rounding and record["compress_at"] not in BEFORE_ANSWERS:
            return Differences(wrong, unsure)  # the prompt's bytes in its caches depend on the tokens
    for name in sorted(differ - {"tokens"}):
        most = max((apart(variant.get(name), again[name]) for variant in variants), default=0.0)
        line = f"{name} is {_short(record[name])}, and {_short(again[name])} when made again"
        earlier = name in COUNTED_LESS and record[name] < again[name]
        (unsure if earlier or apart(record[name], again[name]) <= SLACK * most else wrong).append(line)
    return Differences(wrong, unsure)


def unlike(record: Record, again: Record, packed: bool) -> Iterator[str]:
    """Fields that only one of the two records has; a pack has no kept_positions."""
    left_out = OF_A_MACHINE | ({"kept_positions"} if packed else set())
    for name in sorted(again.keys() - record.keys() - left_out):
        yield f"it has no {name}, which kvbench records"
    for name in sorted(record.keys() - again.keys() - left_out):
        yield f"it has {name}, which is not recorded here"


def of_answer(name: str) -> bool:
    return name in OF_AN_ANSWER or name.startswith(("decode_", "r_decode_"))


def apart(a: object, b: object) -> float:
    """The largest difference of numbers in two values, relative to numbers above 1; infinite for other differences."""
    if is_number(a) and is_number(b):
        return abs(a - b) / max(1.0, abs(a), abs(b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        return max(map(apart, a, b), default=0.0)
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        return max((apart(a[name], b[name]) for name in a), default=0.0)
    return 0.0 if a == b else math.inf


def _at(tokens: Sequence[int], place: int) -> str:
    return str(tokens[place]) if place < len(tokens) else "none"


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
