"""Mutate places of kvbench drawn at random, and run the tests that cover each."""

import argparse
import json
import os
import random
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from scripts.frame import script_parser
from scripts.maintenance.mutation.imported import PRELOADED, outcome_of, use
from scripts.maintenance.mutation.places import Place, found_again, of_row, of_tree, with_fault
from scripts.maintenance.mutation.related import Related
from scripts.maintenance.mutation.session import Session
from scripts.maintenance.mutation.swap import changed_functions

FIRST = 8  # tests of the function that found a fault before


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("tree", type=Path, help="a checkout of its own: its files are changed while the tests run")
    parser.add_argument("--trace", type=Path, help="the folder that `trace` wrote; default: tests by their names")
    parser.add_argument("--seconds", type=Path, help="without it: a folder with seconds of an earlier suite's tests")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--like", type=Path, help="the places of this result of another checkout, as far as they exist")
    parser.add_argument("--limit", type=float, default=15, help="CPU seconds of tests a place; default: %(default)s")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th place, from I")
    parser.add_argument("--out", type=Path, required=True, help="continued where it exists: a line of JSON a place")
    args = parser.parse_args()
    for name in PRELOADED:
        __import__(name)
    run = Run(args)
    if not os.fork():
        run.in_copies()
    os.wait()
    run.by_imports()


class Run:
    def __init__(self, args: argparse.Namespace) -> None:
        self.tree, self.limit, self.out = args.tree.resolve(), args.limit, args.out.resolve()
        self.collected = self.out.with_suffix(".tests")
        if args.like:
            drawn = found_again(args.like, self.tree)
        else:
            drawn = random.Random(args.seed).sample(of_tree(self.tree), args.count)
        rows = map(json.loads, args.like.read_text().splitlines() if args.like else [])
        self.found_by = {of_row(row).key: row["found_by"] for row in rows}
        shard, shards = map(int, args.shard.split("/"))
        self.drawn = drawn[shard::shards]
        if args.trace:
            from scripts.maintenance.mutation.covered import Covered  # needs coverage

            self.choice = Covered(args.trace, self.tree, self.drawn)
        else:
            self.choice = Related(self.tree, args.seconds)

    def left(self) -> list[tuple[str, Place]]:
        return [(path, place) for path, place in self.drawn if (path, place.start, place.text) not in self.known()]

    def known(self) -> set[tuple[str, int, str]]:
        rows = map(json.loads, self.out.read_text().splitlines() if self.out.exists() else [])
        return {(row["path"], row["start"], row["text"]) for row in rows}

    def in_copies(self) -> None:
        """In a process of its own: the faults inside of functions, in copies of a process that has collected tests."""
        import pytest

        use(self.tree)
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", *self.files()]
        os._exit(pytest.main(options, plugins=[Session(self.swapped)]))

    def files(self) -> list[str]:
        """What pytest collects: with what found a fault in the other result."""
        functions = {name.partition("::")[2].partition("[")[0] for name in self.found_by.values() if name}
        return self.choice.to_collect(self.left(), functions)

    def swapped(self, session: Session) -> None:
        self.collected.write_text("\n".join(session.items), encoding="utf-8")
        for path, place in self.left():
            file = self.tree / path
            source = file.read_text(encoding="utf-8")
            faulty = with_fault(source, place)
            pairs = changed_functions(str(file), source, faulty)
            if pairs and "numba" not in source:  # whose machine code stays that of the old function
                tests = self.tests(path, place, set(session.items))
                self.tell(path, place, tests, session.outcome_of(file, pairs, faulty, tests, self.limit))

    def by_imports(self) -> None:
        """The others."""
        collected = set(self.collected.read_text(encoding="utf-8").splitlines())
        for path, place in self.left():
            tests = self.tests(path, place, collected)
            self.tell(path, place, tests, outcome_of(self.tree, path, place, tests, self.limit))

    def tests(self, path: str, place: Place, collected: set[str]) -> list[str]:
        """Those of the place; first what found its fault in the other result, wherever it lies now."""
        tests = self.choice.tests(path, place, collected, self.limit)
        before = self.found_by.get(place.key, "").partition("::")[2]
        function = before.partition("[")[0]
        alike = sorted(test for test in collected if before and test.split("::")[-1].partition("[")[0] == function)
        first = sorted(alike, key=lambda test: test.partition("::")[2] != before)[:FIRST]
        return [*first, *(test for test in tests if test not in first)]

    def tell(self, path: str, place: Place, tests: list[str], outcome: tuple[str, str]) -> None:
        row = {"path": path, **asdict(place), "tests": len(tests), "outcome": outcome[0], "found_by": outcome[1]}
        with self.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        outcomes = Counter(json.loads(line)["outcome"] for line in self.out.read_text().splitlines())
        print(dict(outcomes), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
