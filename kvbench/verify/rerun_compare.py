"""A record beside the one that was made again: what differs, and whether rounding could be why."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvbench.records.schema import MethodRecord

Record = Mapping[str, Any]

_UNITS = {name: field.json_schema_extra for name, field in MethodRecord.model_fields.items()}
TIMES = {name for name, extra in _UNITS.items() if isinstance(extra, dict) and extra.get("unit") == "s"}
# What follows from a machine, a run or the batch rather than from the model, the sample and the setting.
OF_A_MACHINE = TIMES | {
    *("key", "run", "checksum", "decode_batch", "decode_engine", "peak_device_bytes"),
    *("close_call", "close_cuts"),  # what rounding could change there
}
# What follows from the tokens that were generated: their text and scores, and what caches held meanwhile.
OF_AN_ANSWER = frozenset(
    {"tokens", "prediction", "scores", "distance", "peak_cache_bytes", "triggers"}
    | {"r_mean", "r_peak", "r_end", "r_read"}
)
BEFORE_ANSWERS = ("in_prefill", "prefill_end")  # when a prompt is compressed that no generated token changes
EQUAL = {"distance": 1e-5}  # nats, from sums over a vocabulary in float32
SLACK = 4.0  # times the largest change by other rounding that is seen here


class Differences(NamedTuple):
    """One line for each field: of what cannot be, and of what rounding can explain."""

    wrong: list[str]
    open: list[str]


def differing(record: Record, again: Record) -> set[str]:
    """The fields in which a record and the one made again differ, of those that both have and machines share."""
    names = (record.keys() & again.keys()) - OF_A_MACHINE
    apart_in = {name for name in names if apart(record[name], again[name]) > EQUAL.get(name, 1e-9)}
    return {name for name in apart_in if not of_answer(name)} | {"tokens"} if "tokens" in apart_in else apart_in


def judge(record: Record, again: Record, others: Sequence[Record]) -> Differences:
    """The fields that differ, beside the same record with the model's sums rounded otherwise (`others`)."""
    differ = differing(record, again)
    wrong: list[str] = []
    unsure: list[str] = []
    if "tokens" in differ:
        tokens = record["tokens"] or []
        place = first_difference(tokens, again["tokens"])
        line = f"token {place} is {_at(tokens, place)}, and {_at(again['tokens'], place)} when made again"
        close = again.get("close_call")
        rounding = (close is not None and close <= place) or any(one["tokens"] != again["tokens"] for one in others)
        (unsure if rounding else wrong).append(line)
        if rounding and record["compress_at"] not in BEFORE_ANSWERS:
            return Differences(wrong, unsure)  # what its caches hold of the prompt depends on the tokens
    for name in sorted(differ - {"tokens"}):
        most = max((apart(one.get(name), again[name]) for one in others), default=0.0)
        line = f"{name} is {_short(record[name])}, and {_short(again[name])} when made again"
        (unsure if apart(record[name], again[name]) <= SLACK * most else wrong).append(line)
    return Differences(wrong, unsure)


def unlike(record: Record, again: Record, packed: bool) -> Iterator[str]:
    """Fields that one of the two records lacks; a pack has no kept_positions."""
    left_out = OF_A_MACHINE | ({"kept_positions"} if packed else set())
    for name in sorted(again.keys() - record.keys() - left_out):
        yield f"it has no {name}, which kvbench records"
    for name in sorted(record.keys() - again.keys() - left_out):
        yield f"it has {name}, which is not recorded here"


def of_answer(name: str) -> bool:
    return name in OF_AN_ANSWER or name.startswith(("decode_", "r_decode_"))


def apart(one: object, other: object) -> float:
    """How far two values are from each other: their numbers' largest difference, as a share of those above 1."""
    if isinstance(one, bool) or isinstance(other, bool) or not _numbers(one, other):
        if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
            return max(map(apart, one, other), default=0.0)
        if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
            return max((apart(value, other[name]) for name, value in one.items()), default=0.0)
        return 0.0 if one == other else math.inf
    a, b = float(one), float(other)  # type: ignore[arg-type]
    return abs(a - b) / max(1.0, abs(a), abs(b))


def _numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) for value in values)


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place at which two different answers differ; behind the shorter one where it begins the other."""
    same = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(same, min(len(one), len(other)))


def _at(tokens: Sequence[int], place: int) -> str:
    return str(tokens[place]) if place < len(tokens) else "none"


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
