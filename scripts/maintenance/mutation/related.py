"""The tests that most likely run a place, by names: for want of a trace, which takes longer than the suite."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from scripts.maintenance.mutation.places import Place

NEAREST = 8  # test files of a place
UNKNOWN = 0.1  # CPU seconds of a test of which nothing is known


class Related:
    """Test files by what they share with a place: its file's name, its module, its class or function, its folder.

    root: the checkout; seconds: a folder with CPU seconds of tests, of this suite or an earlier one.
    """

    def __init__(self, root: Path, seconds: Path | None) -> None:
        self.texts = {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted((root / "tests").rglob("test_*.py"))
        }
        lines = [line for path in seconds.glob("seconds.*.jsonl") for line in path.open()] if seconds else []
        self.known = {name.partition("::")[2]: cost for name, cost in map(json.loads, lines)}

    def seconds(self, test: str) -> float:
        return self.known.get(test.partition("::")[2], UNKNOWN)

    def files(self, path: str, place: Place) -> list[str]:
        """Those that have anything in common, the nearest first."""
        near = {name: self.nearness(name, path, place) for name in self.texts}
        return sorted((name for name in near if near[name]), key=lambda name: (-near[name], name))

    def nearness(self, test: str, path: str, place: Place) -> int:
        source, text = Path(path).with_suffix(""), self.texts[test]
        module, stem = ".".join(source.parts), source.name
        names = [name for name in place.scope.split(".") if name and not name.startswith("__")]
        folders = set(source.parts[1:-1]) & set(Path(test).parts[1:-1])
        score = 8 * (Path(test).stem in {f"test_{stem}", f"test_{source.parent.name}_{stem}"})
        score += 4 * (re.search(rf"\b{re.escape(module)}\b", text) is not None)
        score += 4 * sum(re.search(rf"\b{re.escape(name)}\b", text) is not None for name in names)
        score += 2 * (re.search(rf"\b{re.escape(stem)}\b", test + text) is not None)
        return score + len(folders)

    def to_collect(self, drawn: list[tuple[str, Place]], functions: Collection[str] = ()) -> list[str]:
        """What pytest collects for these places: their nearest files, and those with one of these test functions."""
        near = {file for path, place in drawn for file in self.files(path, place)[:NEAREST]}
        named = {file for file, text in self.texts.items() if any(f"def {name}(" in text for name in functions)}
        return sorted(near | named)

    def tests(self, path: str, place: Place, collected: set[str], limit: float) -> list[str]:
        """At most `limit` seconds of tests: of the nearest files first, of each the fastest of each function first."""
        by_file = defaultdict(list)
        for test in collected:
            by_file[test.partition("::")[0]].append(test)
        files = self.files(path, place)[:NEAREST]
        names, spent = [], 0.0
        for number, file in enumerate(files):
            share = (limit - spent) / (2 if number + 1 < len(files) else 1)  # half of what is left
            for test in turns(by_file[file], self.seconds):
                cost = self.seconds(test)
                if cost <= share:
                    share, spent = share - cost, spent + cost
                    names.append(test)
        return names


def turns(tests: Iterable[str], seconds: Callable[[str], float]) -> list[str]:
    """The fastest test of each function, then the next of each."""
    count: dict[str, int] = defaultdict(int)
    order = []
    for test in sorted(tests, key=lambda test: (seconds(test), test)):
        function = test.partition("[")[0]
        order.append((count[function], seconds(test), test))
        count[function] += 1
    return [test for _, _, test in sorted(order)]
