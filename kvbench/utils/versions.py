"""Versions of the classes and functions that shape results. A change of what one computes takes the next integer.

A version above 1 is part of a record's key, so that a corrected method, benchmark or metric does not continue among the
records of its earlier version. tests/data/golden has the results of each; changed results need a new version.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar


class Versioned:
    """Methods, their parts, probes and benchmarks. A subclass has the version of its base until it gets its own."""

    version: ClassVar[int] = 1


def versions(*objects: object) -> dict[str, int]:
    """The version of each object and of the parts that its fields hold, by the name of the class."""
    return dict(sorted((type(part).__name__, type(part).version) for part in parts(*objects)))


def parts(*objects: object) -> Iterator[Versioned]:
    """The objects that have a version, and those that their fields hold."""
    todo = list(objects)
    while todo:
        part = todo.pop()
        if isinstance(part, Versioned):
            yield part
            todo += vars(part).values()
        elif isinstance(part, Mapping):
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part


def outside_classes(*objects: object) -> list[str]:
    """The names of the classes of `objects` and their parts that are not kvbench's own, or derive from such a class."""
    kinds = {type(part).__name__: type(part).__mro__ for part in parts(*objects)}
    return sorted(name for name, bases in kinds.items() if any(map(_is_outside, bases)))


def _is_outside(kind: type) -> bool:
    return issubclass(kind, Versioned) and kind.__module__.partition(".")[0] != __package__.partition(".")[0]


def raised(versions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The versions above 1 as an entry of a record's key. Without any there is none, as before there were versions."""
    above = {name: version for name, version in versions.items() if version != 1}
    return {"versions": above} if above else {}
