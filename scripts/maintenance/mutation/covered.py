"""The tests that run a line, from what `trace` wrote."""

import json
from collections import defaultdict
from pathlib import Path

from coverage import CoverageData

from scripts.maintenance.mutation.places import Place


class Covered:
    """Tests by the lines that they run.

    folder: written by `trace`, on the same sources; root: the folder that contains kvbench in that run.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self.data = [CoverageData(str(path)) for path in sorted(folder.glob("lines.*"))]
        for data in self.data:
            data.read()
        lines = (line for path in folder.glob("seconds.*.jsonl") for line in path.read_text().splitlines())
        self.seconds: dict[str, float] = dict(json.loads(line) for line in lines)

    def tests(self, path: str, place: Place) -> list[str]:
        """The tests of a place: those of its line, or of its file where only an import runs the line."""
        by_line: dict[int, set[str]] = defaultdict(set)
        for data in self.data:
            for line, contexts in data.contexts_by_lineno(str(self.root / path)).items():
                by_line[line].update(context for context in contexts if context in self.seconds)
        tests = by_line[place.line] | by_line[place.statement] or set().union(*by_line.values())
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def chosen(tests: list[str], seconds: dict[str, float], limit: float) -> list[str]:
    """At most `limit` seconds of tests: the fastest of each test function, then the next of each."""
    turns: dict[str, int] = defaultdict(int)
    order = []
    for test in tests:
        function = test.partition("[")[0]
        order.append((turns[function], seconds[test], test))
        turns[function] += 1
    spent, names = 0.0, []
    for _, cost, test in sorted(order):
        if spent + cost <= limit or not names:
            spent += cost
            names.append(test)
    return names
