"""Which setting takes most of a run's time, from the records of a finished sample."""

from collections import Counter
from collections.abc import Mapping, Sequence

# A setting dominates above this share of the time, and above so many times its even share.
SHARE, TIMES = 0.5, 3


def dominant(records: Sequence[Mapping]) -> tuple[str, float] | None:
    """The setting that dominates the time of these records, and its share of it; None where there is none.

    `records` are all of one sample. Settings that share a prefill pass or decode as one batch share its time equally.
    """
    passes = Counter(record.get("prefill_seconds") for record in records)
    seconds = {record["setting"]: _seconds(record, passes) for record in records}
    whole = sum(seconds.values())
    if not whole:
        return None
    setting = max(seconds, key=seconds.__getitem__)
    share = seconds[setting] / whole
    return (setting, share) if share > max(SHARE, TIMES / len(seconds)) else None


def _seconds(record: Mapping, passes: Mapping[float, int]) -> float:
    prefill = record.get("prefill_seconds") or 0.0
    decoding = (record.get("question_seconds") or 0.0) + (record.get("decode_seconds") or 0.0)
    own = (record.get("compress_seconds") or 0.0) + decoding / (record.get("decode_batch") or 1)
    return prefill / passes[record.get("prefill_seconds")] + own
