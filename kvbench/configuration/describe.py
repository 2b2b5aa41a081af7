"""Descriptions of the configuration's keys: default and meaning from conf/config.yaml, values from the type."""

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from kvbench.configuration.conf import CONF
from kvbench.configuration.configuration import GROUPS, SECTIONS, Configuration
from kvbench.utils.yaml_comments import commented

WORDS: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", NoneType: "`null`"}

# Groups that take more than one name on the command line.
NAMES = dict.fromkeys(("method", "probe"), "name or list of names")


class Key(NamedTuple):
    """A key as documentation describes it."""

    name: str
    default: str  # as conf/config.yaml writes it
    values: str  # in words; names of values in backquotes
    about: str


def keys() -> list[Key]:
    """Every key of conf/config.yaml that can be set, in its order."""
    types = {field.name: field.type for field in fields(Configuration)}
    types |= {f"{name}.{field.name}": field.type for name, form in SECTIONS.items() for field in fields(form)}
    comments = commented((CONF / "config.yaml").read_text(encoding="utf-8"))
    return [
        Key(name, key.value, NAMES.get(name, "name") if name in GROUPS else values(types[name]), key.about)
        for name, key in comments.items()
        if name in types
    ]


def values(annotation: object) -> str:
    """The values of a type, in words."""
    if annotation in WORDS:
        return WORDS[annotation]
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return next((part for part in parts[1:] if isinstance(part, str)), None) or values(parts[0])
    if kind is Literal:
        return _alternatives([f"`{part}`" for part in parts])
    if kind in (Union, UnionType):
        return _alternatives([word for part in parts for word in values(part).split(" or ")])
    if kind is dict:
        return "mapping"
    raise TypeError(f"no words for {annotation}")


def _alternatives(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
