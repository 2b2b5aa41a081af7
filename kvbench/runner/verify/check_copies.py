"""Whether records were copied: two of one cell, or of different samples with the same times."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from kvbench.records.consistency import check
from kvbench.records.identity import prefill_of
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.verdict import Check, judged

TIMES = ("prefill_seconds", "compress_seconds", "decode_seconds")


def no_copies(folder: Folder) -> Check:
    """No cell has two records, and no two records have the same times: clocks count nanoseconds."""
    wrong = [finding.message for finding in check(folder.frame) if finding.kind in ("conflict", "data")]
    by_times, prefills = defaultdict(list), defaultdict(set)
    for record in folder.methods:
        if record["decode_steps"] and record["decode_seconds"]:
            by_times[tuple(record[name] for name in TIMES)].append(record)
        if record["question"] == "visible" and not record.get("context_id") and not record.get("sampling"):
            prefills[prefill_of(record)].add(record["sample"])
    wrong += [f"{named(a)} and {named(b)} have the same times" for a, b in _pairs(by_times.values())]
    timed = (sorted(samples) for seconds, samples in prefills.items() if seconds)
    wrong += [f"samples {a!r} and {b!r} have the same seconds of prefill" for a, b in _pairs(timed)]
    return judged("copies", "cells of the table, and times of different records", wrong)


def _pairs(groups: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """The first two members of each group that has several."""
    return (group[:2] for group in groups if len(group) > 1)
