"""Whether records were copied: two of one setting, or of different samples with the same times."""

from collections import defaultdict

from kvbench.records.consistency import check
from kvbench.records.identity import prefill_of
from kvbench.verify.folder import Folder, named
from kvbench.verify.verdict import Check, judged

TIMES = ("prefill_seconds", "compress_seconds", "decode_seconds")


def no_copies(folder: Folder) -> Check:
    """No cell of a table twice, and no two records with the same times: clocks count nanoseconds."""
    wrong = [finding.message for finding in check(folder.frame) if finding.kind == "conflict"]
    same, prefills = defaultdict(list), defaultdict(set)
    for record in folder.methods:
        if record["decode_steps"] and record["decode_seconds"]:
            same[tuple(record[name] for name in TIMES)].append(record)
        if record["question"] == "visible" and not record.get("context_id") and not record.get("sampling"):
            prefills[prefill_of(record)].add(record["sample"])
    wrong += [f"{named(some[0])} and {named(some[1])} have the same times" for some in same.values() if len(some) > 1]
    wrong += [
        f"samples {sorted(some)[0]!r} and {sorted(some)[1]!r} have the same seconds of prefill"
        for seconds, some in prefills.items()
        if seconds and len(some) > 1
    ]
    return judged("copies", "cells of the table, and times of different records", wrong)
