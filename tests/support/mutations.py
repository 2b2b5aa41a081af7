"""Every field of a folder's records and manifest deleted, or with another value: each alone, and sealed again."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.support.forged import Forged

DELETED = object()
OTHERS = (DELETED, None, "unknown", -5, 2**40, {"x": 1})


class Mutation(NamedTuple):
    """A change of one field: in a manifest, or in all records that a setting has."""

    where: str  # record or manifest
    path: tuple[str | int, ...]
    value: Any

    @property
    def name(self) -> str:
        told = "deleted" if self.value is DELETED else repr(self.value)
        return f"{self.where}.{'.'.join(map(str, self.path))} {told}"

    def apply(self, forged: Forged, setting: str | None) -> None:
        """`setting`: whose records are changed; None: all."""
        if self.where == "manifest":
            put(forged.manifest, self.path, self.value)
        for record in forged.records if self.where == "record" else ():
            if setting in (None, record["setting"]):
                put(record, self.path, self.value)


def put(node: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        node = node[step]
    if value is DELETED:
        del node[path[-1]]
    else:
        node[path[-1]] = copy.deepcopy(value)


def mutations(record: dict, manifest: dict) -> Iterator[Mutation]:
    """Each field of a record, and each value of a manifest, also inside others, with each of OTHERS that it is not."""
    for name, value in record.items():
        yield from _others("record", (name,), value)
    for path, value in paths(manifest):
        yield from _others("manifest", path, value)


def _others(where: str, path: tuple[str | int, ...], value: Any) -> Iterator[Mutation]:
    for other in OTHERS:
        if other is DELETED or type(other) is not type(value) or other != value:
            yield Mutation(where, path, other)


def paths(node: dict, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for key, value in node.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from paths(value, (*path, key))


def seal(forged: Forged, change: Callable[[], None]) -> None:
    """The folder with a change, and then without it: records, manifest and samples are put back as they were."""
    before = copy.deepcopy((forged.records, forged.manifest))
    try:
        change()
        try:
            forged.seal()
        except (AttributeError, KeyError, TypeError):  # no key can be made of it
            forged.seal(keys=False)
    finally:
        forged.records, forged.manifest = before
