"""The faults that the tests before and after a change find: python -m scripts.maintenance.mutation.table BEFORE AFTER

BEFORE, AFTER: files that `python -m scripts.maintenance.mutation` wrote, one of them with `--like` the other. Places
that only one has are left out.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from scripts.maintenance.mutation.places import of_row

FOUND = {"found", "endless"}


def main() -> None:
    before, after = (by_place(Path(name)) for name in sys.argv[1:3])
    both = sorted(before.keys() & after.keys())
    print("| kind of fault | places | found before | found after |\n| :-- | --: | --: | --: |")
    kinds = Counter(before[place]["kind"] for place in both)
    for kind in [*sorted(kinds), "all"]:
        of_kind = [place for place in both if kind in {before[place]["kind"], "all"}]
        counts = [sum(rows[place]["outcome"] in FOUND for place in of_kind) for rows in (before, after)]
        print(f"| {kind} | {len(of_kind)} | {counts[0]} | {counts[1]} |")
    for place in both:
        if before[place]["outcome"] in FOUND and after[place]["outcome"] not in FOUND:
            row = after[place]
            print(f"\nNo longer found: {row['path']}:{row['line']} {row['text']}", end="")
            print(f", by {before[place]['found_by']} before")


def by_place(path: Path) -> dict[tuple[str, str, str, int], dict[str, object]]:
    return {of_row(row).key: row for row in map(json.loads, path.read_text().splitlines())}


if __name__ == "__main__":
    main()
