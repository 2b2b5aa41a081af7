"""Classes that configurations name as `_target_`: found, and checked against what stands in their place, before a call.

Finding a class imports its module, which a configuration of the user's asks for; no function is ever called.
"""

import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from inspect import isclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from hydra._internal.utils import _locate

from kvbench.errors import UserError
from kvbench.utils.own_code import own_line

TARGET = "_target_"
MOST = 12  # classes of a module that an error lists


def class_of(node: Mapping[str, Any], what: str, *bases: type) -> type:
    """The class that a node names, a subclass of one of `bases`, and so for every node inside it.

    What a node inside must be is said by the annotation of the parameter that it is given for. Raises UserError, which
    begins with `what`, for anything else; nothing has been called then.
    """
    if TARGET not in node:
        raise UserError(f"{what} has no {TARGET}: its YAML must name a class")
    found = _found(node[TARGET], what)
    if not isclass(found) or not issubclass(found, bases):
        allowed = " or ".join(map(_public_name, bases)) or "anything: its parameter is not annotated with a class"
        raise UserError(f"{what}: {node[TARGET]} is not a subclass of {allowed}")
    hints = _hints(found)
    for key, value in node.items():
        for inner in _nodes(value):
            class_of(inner, f"{what}, {key}", *_classes(hints.get(key)))
    return found


def _found(name: object, what: str) -> object:
    if not isinstance(name, str):
        raise UserError(f"{what}: {TARGET}={name!r} must be a class as module.Class")
    try:
        return _locate(name)
    except (ImportError, ValueError) as error:
        own = own_line(error.__cause__) if error.__cause__ else None
        why = f"{name} cannot be imported: {own}" if own else _missing(name)
        raise UserError(f"{what}: {why}") from error


def _missing(name: str) -> str:
    """What there is not of module.Class, and what there is in its place."""
    module, _, wanted = name.rpartition(".")
    if not module:
        return f"{name} must be a class as module.Class"
    if module not in sys.modules:
        return f"{name}: there is no module {module!r} in this folder, and none is installed"
    classes = {key: value for key, value in vars(sys.modules[module]).items() if isclass(value)}
    own = [key for key, value in classes.items() if value.__module__.startswith(module)]
    near = get_close_matches(wanted, own, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    its = "" if len(own) > MOST else f" It has {', '.join(own) or 'none'}"
    return f"{module} has no class {wanted!r}.{hint}{its}"


def _nodes(value: object) -> list[Mapping[str, Any]]:
    """The outermost nodes with a class in a parameter's value."""
    if isinstance(value, Mapping):
        return [value] if TARGET in value else _nodes(list(value.values()))
    return [node for item in value for node in _nodes(item)] if isinstance(value, list | tuple) else []


def _hints(found: type[Any]) -> dict[str, Any]:
    """Annotations of the parameters, by name; none where they name what cannot be found."""
    try:
        return get_type_hints(found if is_dataclass(found) else found.__init__)
    except (NameError, AttributeError, TypeError):
        return {}


def _classes(hint: object) -> list[type]:
    """The classes that an annotation consists of, except those of every object and of None."""
    if parts := get_args(hint):
        return [each for part in parts for each in _classes(part)]
    return [hint] if isclass(hint) and hint not in (object, NoneType) else []


def _public_name(base: type) -> str:
    """Where a class is imported from: those of kvbench from their package."""
    module = base.__module__.split(".")
    return ".".join([*(module[:2] if module[0] == "kvbench" else module), base.__name__])
