"""Classes that configurations name as `_target_`: looked up, checked against the type of their place, then built.

Looking up a class imports its module, as the user's configuration requests; functions are never called. Values are
plain: a text stays a text, whatever it contains.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import isclass, ismodule, signature
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from kvbench.errors import UserError, unknown
from kvbench.utils.config_folder import DESCRIPTIONS, SWITCHES
from kvbench.utils.own_code import line_about, own_line
from kvbench.utils.own_functions import check_functions
from kvbench.utils.plugins import plugin_of
from kvbench.utils.versions import parts

TARGET = "_target_"
# Keys that are no parameters. `_convert_: all` changes nothing, but stays because it is in the keys of records.
SPECIAL = frozenset({TARGET, "_convert_"})
# Keys of a YAML file that describe it, and are no parameters of its class. help_group is a method's group in
# `kvbench --help method`, short_help says that `kvbench --help` has it too, colour is a method's or an engine's in
# figures, and thinking a benchmark's wish for models whose chat template has a switch.
DESCRIBING = frozenset({*DESCRIPTIONS, *SWITCHES, "thinking"})
MOST = 12  # classes of a module that an error lists

Built = TypeVar("Built")
Find = Callable[[str], object]  # from module.Class to the object of that name


@dataclass(frozen=True)
class Part:
    """A class that a configuration names, with its arguments: values and further parts."""

    kind: type[Any]
    arguments: dict[Any, object]

    def built(self) -> Any:
        """An object of the class, its parts first. Raises whatever the classes raise."""
        return self.kind(**{key: _built(value) for key, value in self.arguments.items()})


def _built(value: object) -> object:
    if isinstance(value, Part):
        return value.built()
    if isinstance(value, dict):
        return {key: _built(inner) for key, inner in value.items()}
    return [_built(inner) for inner in value] if isinstance(value, list) else value


def imported(name: str) -> object:
    """The object of the name module.Class, whose module is imported. Raises what the module raises, or ImportError."""
    path, *parts = name.split(".")
    if not path or not all(parts):
        raise ImportError(f"{name!r} is not a name with dots")
    target: object = import_module(path)
    for part in parts:
        path = f"{path}.{part}"
        target = import_module(path) if ismodule(target) and not hasattr(target, part) else getattr(target, part)
    return target


def named_classes(node: object) -> Iterator[str]:
    """The classes that a node and all nodes inside it name, including those of an experiment's patches."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if str(key).startswith(TARGET):
                yield str(value)
            yield from named_classes(value)
    elif isinstance(node, list):
        for value in node:
            yield from named_classes(value)


def build(config: Mapping[str, Any], what: str, base: type[Built], find: Find = imported) -> Built:
    """An object of a configuration's `_target_`, a subclass of `base`.

    `find` looks up the names of classes: strangers' files may only name known ones. Raises UserError, which begins with
    `what`, for any other target, which is not called, if building fails, and for a user's class with a function of
    other arguments than its base's.
    """
    part = part_of({key: value for key, value in config.items() if key not in DESCRIBING}, what, base, find=find)
    try:
        built = part.built()
        for each in parts(built):
            check_functions(type(each))
        return built
    except Exception as error:
        raise UserError(f"{what}: {line_about(error)}") from error


def class_of(node: Mapping[str, Any], what: str, *bases: type, find: Find = imported) -> type:
    """The class of `part_of`."""
    return part_of(node, what, *bases, find=find).kind


def part_of(node: Mapping[str, Any], what: str, *bases: type, find: Find = imported) -> Part:
    """The class that a node names, a subclass of one of `bases`, and so for every node inside it.

    An inner node must fit the annotation of the parameter whose value it is. Raises UserError, which begins with
    `what`, for anything else and for a class without all methods of its base, whose `guide` is the page that describes
    them; nothing has been called then.
    """
    if TARGET not in node:
        raise UserError(f"{what} has no {TARGET}: its YAML must name a class")
    kind = _look_up(node[TARGET], what, find)
    if not isclass(kind) or not issubclass(kind, bases):
        allowed = " or ".join(map(_public_name, bases)) or "anything: its parameter is not annotated with a class"
        raise UserError(f"{what}: {node[TARGET]} is not a subclass of {allowed}")
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        described = f", which {kind.guide} describes" if hasattr(kind, "guide") else ""
        raise UserError(f"{what}: {kind.__name__} lacks {', '.join(missing)}{described}")
    takes = _parameters(kind)
    for key, value in node.items():
        if takes is not None and isinstance(value, Mapping) and key not in takes | SPECIAL:
            raise UserError(f"{what}: {unknown(f'parameter of {kind.__name__}', str(key), takes)}")
    hints = _hints(kind)
    return Part(
        kind,
        {
            key: _parsed(value, f"{what}, {key}", _classes(hints.get(key)), find)
            for key, value in node.items()
            if key not in SPECIAL
        },
    )


def _parsed(value: object, what: str, bases: list[type], find: Find) -> object:
    """A parameter's value, with a part instead of each node that names a class."""
    if isinstance(value, Mapping):
        if TARGET in value:
            return part_of(
                {key: inner for key, inner in value.items() if key not in DESCRIBING}, what, *bases, find=find
            )
        return {key: _parsed(inner, what, bases, find) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_parsed(inner, what, bases, find) for inner in value]
    return value


def _look_up(name: object, what: str, find: Find) -> object:
    if not isinstance(name, str):
        raise UserError(f"{what}: {TARGET}={name!r} must be a class as module.Class")
    try:
        return find(name)
    except UserError as error:
        raise UserError(f"{what}: {error}") from error
    except Exception as error:  # a user's module may raise anything
        place, plugin = own_line(error), plugin_of(name)
        reason = f"{name} cannot be imported: {place}" if place else _missing(name)
        if plugin and f"of {plugin}" not in reason:
            reason = f"the plug-in {plugin}: {reason}"
        raise UserError(f"{what}: {reason}") from error


def _missing(name: str) -> str:
    """The missing part of module.Class, and the names that exist in its place."""
    module, _, class_name = name.rpartition(".")
    if not module:
        return f"{name} must be a class as module.Class"
    if module not in sys.modules:
        return f"{name}: there is no module {module!r} in this folder, and none is installed"
    namespace = sys.modules[module]
    classes = {key: value for key, value in vars(namespace).items() if isclass(value)}
    defined = [key for key, value in classes.items() if value.__module__.startswith(module)]
    defined += [key for key in dir(namespace) if key not in vars(namespace)]  # imported on demand
    near = get_close_matches(class_name, defined, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = "" if len(defined) > MOST else f" It has {', '.join(defined) or 'none'}"
    return f"{module} has no class {class_name!r}.{hint}{listed}"


def _parameters(kind: type[Any]) -> frozenset[str] | None:
    """The names of a class's parameters; None if it takes any, or does not tell."""
    try:
        parameters = signature(kind).parameters
    except ValueError:  # some of Python's own classes
        return None
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else frozenset(parameters)


def _hints(kind: type[Any]) -> dict[str, Any]:
    """Annotations of the parameters, by name; none if they cannot be resolved."""
    try:
        return get_type_hints(kind if is_dataclass(kind) else kind.__init__)
    except (NameError, AttributeError, TypeError):
        return {}


def _classes(hint: object) -> list[type]:
    """The classes in an annotation, except `object` and that of None."""
    if parts := get_args(hint):
        return [inner for part in parts for inner in _classes(part)]
    return [hint] if isclass(hint) and hint not in (object, NoneType) else []


def _public_name(base: type) -> str:
    """The name under which a class is imported: kvbench's own from their package."""
    module = base.__module__.split(".")
    return ".".join([*(module[:2] if module[0] == "kvbench" else module), base.__name__])
