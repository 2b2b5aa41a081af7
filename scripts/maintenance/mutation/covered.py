"""The tests that run a line, from what `trace` wrote."""

import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from coverage import CoverageData

from scripts.maintenance.mutation.places import Place
from scripts.maintenance.mutation.related import turns


class Covered:
    """The tests of places.

    folder: written by `trace` in this checkout; root: the checkout; drawn: the places, each with its file. All is read
    at once: coverage empties a file that a copy of the process opens again.
    """

    def __init__(self, folder: Path, root: Path, drawn: list[tuple[str, Place]]) -> None:
        lines = (line for path in folder.glob("seconds.*.jsonl") for line in path.read_text().splitlines())
        self.seconds: dict[str, float] = dict(json.loads(line) for line in lines)
        data = [CoverageData(str(path)) for path in sorted(folder.glob("lines.*"))]
        for each in data:
            each.read()
        self.places = {(path, place): self.tests_of(data, str(root / path), place) for path, place in drawn}

    def to_collect(self, drawn: list[tuple[str, Place]], functions: Collection[str] = ()) -> list[str]:
        """What pytest collects: all tests."""
        return []

    def tests_of(self, data: list[CoverageData], path: str, place: Place) -> set[str]:
        """The tests that run a place's line, or any line of its file if only an import runs that line."""
        by_line: dict[int, set[str]] = defaultdict(set)
        for each in data:
            for line, contexts in each.contexts_by_lineno(path).items():
                by_line[line].update(context for context in contexts if context in self.seconds)
        return by_line[place.line] | by_line[place.statement] or set().union(*by_line.values())

    def tests(self, path: str, place: Place, collected: set[str], limit: float) -> list[str]:
        """At most `limit` seconds of tests: the fastest of each function, then the next of each. Those of a file follow
        each other, as they share fixtures."""
        spent, names = 0.0, []
        for test in turns(self.places[path, place] & collected, self.seconds.__getitem__):
            if spent + self.seconds[test] <= limit or not names:
                spent += self.seconds[test]
                names.append(test)
        files = [name.partition("::")[0] for name in names]
        return sorted(names, key=lambda name: files.index(name.partition("::")[0]))
