"""The faults that the tests before and after a change find: python -m scripts.maintenance.mutation.table BEFORE AFTER

BEFORE, AFTER: files that `python -m scripts.maintenance.mutation` wrote for the same places.
"""

import json
import sys
from collections import Counter
from pathlib import Path

FOUND = {"found", "endless"}


def main() -> None:
    before, after = (by_place(Path(name)) for name in sys.argv[1:3])
    both = sorted(before.keys() & after.keys())
    print("| kind of fault | places | found before | found after |\n| :-- | --: | --: | --: |")
    kinds = Counter(before[place]["kind"] for place in both)
    for kind in [*sorted(kinds), "all"]:
        those = [place for place in both if kind in {before[place]["kind"], "all"}]
        counts = [sum(rows[place]["outcome"] in FOUND for place in those) for rows in (before, after)]
        print(f"| {kind} | {len(those)} | {counts[0]} | {counts[1]} |")
    for place in both:
        if before[place]["outcome"] in FOUND and after[place]["outcome"] not in FOUND:
            print(f"\nNo longer found: {place[0]}:{before[place]['line']} {before[place]['text']}", end="")
            print(f", by {before[place]['found_by']} before")


def by_place(path: Path) -> dict[tuple[str, int, int, str], dict[str, object]]:
    return {(row["path"], row["start"], row["end"], row["text"]): row for row in json.loads(path.read_text())}


main()
