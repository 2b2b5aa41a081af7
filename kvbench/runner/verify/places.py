"""The fields of a manifest's configuration that name files or functions, at any depth: none is followed."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvbench.metrics.answers import has_name
from kvbench.utils.places import is_place, names_file, names_published

Places = Mapping[str, str]  # model.path and benchmark.KEY -> where this machine has them


class Leaf(NamedTuple):
    """A value with its keys, such as benchmark.of.path."""

    path: str
    key: str  # the last of the keys
    value: object


def placed(node: Mapping[str, Any], places: Places, path: str) -> dict[str, Any]:
    """The node with this machine's places, in the nodes inside it, too. Raises ValueError where one is not given."""
    result: dict[str, Any] = {}
    for key, value in node.items():
        place = f"{path}.{key}"
        if is_place(key):
            if place not in places and value is not None and not names_published(key, value):
                raise ValueError(f"the run read a file: {place}=PATH gives its path here")
            result[key] = places.get(place, value)
        else:
            result[key] = _placed(value, places, place)
    return result


def _placed(value: object, places: Places, path: str) -> object:
    if isinstance(value, Mapping):
        return placed(value, places, path)
    return [_placed(inner, places, path) for inner in value] if isinstance(value, list) else value


def check_functions(node: Mapping[str, Any], path: str) -> None:
    """Raise ValueError for a metric, at any depth, that is a function."""
    for leaf in leaves(node, path):
        if leaf.key == "metric" and leaf.value is not None and not has_name(leaf.value):
            raise ValueError(f"the metric {leaf.value!r} is a function that kvbench does not have")


def check_no_files(node: Mapping[str, Any], path: str) -> None:
    """Raise ValueError for a file of a method, at any depth."""
    for leaf in leaves(node, path):
        if names_file(leaf.key) and leaf.value is not None:
            raise ValueError(f"they name {leaf.value!r}, a file of the machine that ran them, as {leaf.path}")


def leaves(value: object, path: str, key: str = "") -> Iterator[Leaf]:
    """Every value inside a value that is neither a mapping nor a list."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}", str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path, key)
    else:
        yield Leaf(path, key, value)
