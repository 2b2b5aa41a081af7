"""The parts of a run's time, from the seconds in its records."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kvbench.records.identity import batch_of, prefill_of, second_pass_of
from kvbench.utils.text import duration

# A setting dominates above this share of the time, and above so many times its even share.
SHARE, TIMES = 0.5, 3
WORTH = 60.0  # seconds of a run from which a line states its parts


class TimeSpent:
    """Seconds of prefill, compression and decoding of all records so far; a shared pass counts once, and a batch until
    its last sequence has ended."""

    def __init__(self) -> None:
        self.passes: set[float] = set()  # counted passes, see `prefill_of` and `second_pass_of`
        self.batches: dict[float, float] = {}  # seconds that are counted of each batch, see `batch_of`
        self.seconds = {"prefill": 0.0, "compression": 0.0, "decoding": 0.0}

    def add(self, record: Mapping[str, Any]) -> None:
        for part, shared in (("prefill", prefill_of(record)), ("compression", second_pass_of(record))):
            if shared and shared not in self.passes:
                self.passes.add(shared)
                self.seconds[part] += shared
        self.seconds["compression"] += _compression(record)
        self.seconds["decoding"] += self._further(record)

    def _further(self, record: Mapping[str, Any]) -> float:
        """How much longer the record's batch decoded than its records so far say."""
        if (batch := batch_of(record)) is None:
            return _decoding(record)
        counted = self.batches.get(batch, 0.0)
        self.batches[batch] = max(counted, _until_its_end(record))
        return self.batches[batch] - counted

    def line(self, elapsed: float) -> str:
        """Shares of the `elapsed` seconds; empty for a short run, and for records without times."""
        stated = sum(self.seconds.values())
        if elapsed < WORTH or not stated:
            return ""
        parts = [f"{name} {seconds / elapsed:.0%}" for name, seconds in self.seconds.items()]
        return f"{duration(elapsed)}: {', '.join(parts)}, all else {max(1 - stated / elapsed, 0):.0%}"


def dominant(records: Sequence[Mapping[str, Any]]) -> tuple[str, float] | None:
    """The setting that dominates the time of these records, and its share of the time; None: no setting does.

    `records` are all of one sample. Settings that share a pass or decode as one batch share its time equally.
    """
    passes: Counter[float] = Counter(shared for record in records for shared in _shared(record))
    seconds = {record["setting"]: _seconds(record, passes) for record in records}
    total = sum(seconds.values())
    if not total:
        return None
    setting = max(seconds, key=seconds.__getitem__)
    share = seconds[setting] / total
    return (setting, share) if share > max(SHARE, TIMES / len(seconds)) else None


def _seconds(record: Mapping[str, Any], passes: Mapping[float, int]) -> float:
    shared = sum(seconds / passes[seconds] for seconds in _shared(record))
    return shared + _compression(record) + _decoding(record)


def _shared(record: Mapping[str, Any]) -> list[float]:
    """The passes that a record may share with others."""
    return [seconds for seconds in (prefill_of(record), second_pass_of(record)) if seconds]


def _compression(record: Mapping[str, Any]) -> float:
    """A record's part of the time without the pass that it shares."""
    seconds: float = (record.get("compress_seconds") or 0.0) - (second_pass_of(record) or 0.0)
    return seconds


def _decoding(record: Mapping[str, Any]) -> float:
    """A record's part of the batch that it decoded in."""
    return _until_its_end(record) / int(record.get("decode_batch") or 1)


def _until_its_end(record: Mapping[str, Any]) -> float:
    """Seconds from the start of a record's batch to the end of the record's sequence."""
    seconds: float = (record.get("question_seconds") or 0.0) + (record.get("decode_seconds") or 0.0)
    return seconds
