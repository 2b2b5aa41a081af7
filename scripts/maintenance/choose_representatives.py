"""Which presets of conf/method need not be tested everywhere: tests/data/covered_presets.json.

    python -m scripts.maintenance.choose_representatives

The other presets together take every step, from line to line of kvbench's functions, that any preset takes between its
prefill and its last token, and make every choice that a file of conf/method makes. Run it, two minutes, where
tests/scripts/test_choose_representatives.py says so.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.support.config import NAMES
from tests.support.paths import ROOT
from tests.support.representatives import FILE, caches_of, choices_of, journey, kind_of

PACKAGE = f"{ROOT / 'kvbench'}{os.sep}"


class Steps:
    """The steps that kvbench's functions take within a `with`: (file, line before, line), of modules none."""

    def __init__(self) -> None:
        self.taken: set[tuple[str, int, int]] = set()
        self._followed: dict[CodeType, bool] = {}

    def __enter__(self) -> "Steps":
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable | None:
        code = frame.f_code
        if code not in self._followed:
            self._followed[code] = code.co_filename.startswith(PACKAGE) and code.co_name != "<module>"
        return self._follow(code) if self._followed[code] else None

    def _follow(self, code: CodeType) -> Callable:
        taken, file, before = self.taken, code.co_filename, code.co_firstlineno

        def line(frame: FrameType, event: str, argument: object) -> Callable:
            nonlocal before
            if event == "line":
                taken.add((file, before, frame.f_lineno))
                before = frame.f_lineno
            return line

        return line


def taken(names: Iterable[str]) -> set[tuple[str, int, int]]:
    """The steps of some presets, from the prompt to the answer."""
    with Steps() as steps:
        for name in names:
            journey(name)
    return steps.taken


def representatives(covered: Mapping[str, set]) -> list[str]:
    """A small set of names whose values are those of all: the one that adds most, again and again."""
    chosen, left = [], set().union(*covered.values())
    while left:
        chosen.append(min(covered, key=lambda name: (-len(covered[name] & left), len(name), name)))
        left -= covered[chosen[-1]]
    for name in sorted(chosen, key=len, reverse=True):  # what later names cover too
        others = [covered[other] for other in chosen if other != name]
        if covered[name] <= set().union(*others):
            chosen.remove(name)
    return sorted(chosen)


def first(names: list[str], kind: Callable[[str], object]) -> list[str]:
    """The first name of each kind."""
    return list({kind(name): name for name in reversed(names)}.values())


def main() -> None:
    chosen = representatives({name: taken([name]) | choices_of(name) for name in NAMES})
    caches = first([*chosen, *NAMES], caches_of)  # a representative where there is one
    covered = {"steps": chosen, "caches": caches, "kinds": first(caches, kind_of)}
    covered = {what: {*NAMES} - {*names} for what, names in covered.items()}
    FILE.write_text(json.dumps({what: sorted(names) for what, names in covered.items()}, indent=1), encoding="utf-8")
    print(f"{len(chosen)} of {len(NAMES)} presets represent all, {len(caches)} all caches")


if __name__ == "__main__":
    main()
