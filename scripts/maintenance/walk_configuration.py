"""Counts the way of the configuration through the package: python -m scripts.maintenance.walk_configuration

From `run(cfg)` on, the walk follows the configuration and its parts (`cfg.model`, a node of `cfg.method`) into every
function that is called with one, in the order of the code, each function once. A station is a stay in a module; a climb
is a step, a return too, into a module of a higher layer (pyproject.toml lists the layers). What a function makes of the
configuration is no part of it any more, nor is a new mapping with a part among its values; what an object keeps is not
followed, and an error ends the walk.
"""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
START = ("kvbench.runner.run", "run", "cfg")
# Methods that give parts of a mapping.
PARTS = {"get", "items", "keys", "values"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    module: str
    function: Function


class Module:
    """The functions and imports of a source file."""

    def __init__(self, name: str):
        path = ROOT / Path(*name.split("."))
        self.file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.package = name if path.is_dir() else name.rpartition(".")[0]
        tree = ast.parse(self.file.read_text(encoding="utf-8"))
        self.functions = {node.name: node for node in tree.body if isinstance(node, Function)}
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.imports: dict[str, tuple[str, str]] = {}  # a name here -> module and name there; "" for a module itself
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvbench"):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module or "", alias.name)


@cache
def module(name: str) -> Module | None:
    path = ROOT / Path(*name.split("."))
    return Module(name) if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() else None


def function_named(name: str, where: str) -> Place | None:
    """The function called `name` in the module `where`, also if imported there; None for classes and other packages."""
    holder = module(where)
    if holder is None:
        return None
    if name in holder.functions:
        return Place(where, holder.functions[name])
    if name in holder.imports:
        return function_named(holder.imports[name][1], holder.imports[name][0])
    return None


def called(call: ast.Call, where: str) -> Place | None:
    match call.func:
        case ast.Name(name):
            return function_named(name, where)
        case ast.Attribute(ast.Name(holder), name) if (caller := module(where)) and holder in caller.imports:
            source, inner = caller.imports[holder]
            return function_named(name, f"{source}.{inner}")
    return None


def method(name: str) -> Place | None:
    """A method of the configuration or of one of its sections."""
    for path in sorted((ROOT / "kvbench" / "configuration").glob("*.py")):
        where = f"kvbench.configuration.{path.stem}"
        for definition in getattr(module(where), "classes", {}).values():
            for node in definition.body:
                if isinstance(node, Function) and node.name == name:
                    return Place(where, node)
    return None


class Walk:
    """The modules that the configuration comes through, each as often as it comes back to it."""

    def __init__(self) -> None:
        self.stations: list[str] = []
        self.passed: set[tuple[str, int, frozenset[str]]] = set()

    def stay(self, where: str) -> None:
        if not self.stations or self.stations[-1] != where:
            self.stations.append(where)

    def enter(self, place: Place, parts: set[str]) -> None:
        """Follow the parameters `parts` of a function."""
        key = (place.module, place.function.lineno, frozenset(parts))
        if key in self.passed:
            return
        self.passed.add(key)
        self.stay(place.module)
        known = {*parts}
        for call in self._calls(place.function.body, known):
            self._follow(call, place.module, known)
            self.stay(place.module)

    def _calls(self, body: list[ast.stmt], known: set[str]) -> Iterator[ast.Call]:
        """The calls of a function, inner ones first; names that are given a part become known on the way."""
        for statement in body:
            yield from self._inside(statement, known)

    def _inside(self, node: ast.AST, known: set[str]) -> Iterator[ast.Call]:
        if isinstance(node, ast.For | ast.comprehension) and is_part(node.iter, known):
            known |= names(node.target)
        generators = getattr(node, "generators", [])
        for child in (*generators, *(part for part in ast.iter_child_nodes(node) if part not in generators)):
            if not isinstance(child, Function | ast.ClassDef | ast.Raise | ast.ExceptHandler):
                yield from self._inside(child, known)
        match node:
            case ast.Assign(targets=[target], value=value) if is_part(value, known):
                known |= names(target)
            case ast.Assign(targets=[ast.Tuple(targets)], value=ast.Tuple(values)):
                for target, value in zip(targets, values, strict=False):
                    if is_part(value, known):
                        known |= names(target)
            case ast.NamedExpr(target=target, value=value) if is_part(value, known):
                known |= names(target)
            case ast.Call():
                yield node

    def _follow(self, call: ast.Call, where: str, known: set[str]) -> None:
        match call.func:
            case ast.Attribute(holder, name) if is_part(holder, known) and name not in PARTS:
                if (place := method(name)) is not None:
                    self.enter(place, {"self"})
                return
        place = called(call, where)
        if place is None:
            return
        parameters = [argument.arg for argument in (*place.function.args.posonlyargs, *place.function.args.args)]
        values = dict(zip(parameters, call.args, strict=False)) | {
            keyword.arg: keyword.value for keyword in call.keywords if keyword.arg
        }
        parts = {name for name, value in values.items() if is_part(value, known)}
        if parts:
            self.enter(place, parts)


def is_part(node: ast.AST, known: set[str]) -> bool:
    """Whether an expression is the configuration or a part of it."""
    match node:
        case ast.Name(name):
            return name in known
        case ast.Attribute(value, _) | ast.Subscript(value, _) | ast.Starred(value):
            return is_part(value, known)
        case ast.Call(ast.Attribute(value, name), _) if name in PARTS:
            return is_part(value, known)
        case ast.BoolOp(_, values):
            return any(is_part(value, known) for value in values)
        case ast.IfExp(_, body, other):
            return is_part(body, known) or is_part(other, known)
        case ast.DictComp(value=value) | ast.ListComp(value) | ast.SetComp(value) | ast.GeneratorExp(value):
            return is_part(value, known)
    return False


def names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def layers() -> list[set[str]]:
    """The layers of the package, from the lowest to the highest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [{name.strip() for name in row.split("|")} for row in reversed(rows)]


def climbs(stations: list[str]) -> list[tuple[str, str]]:
    """The steps into a higher layer."""
    order = layers()
    height = [next(i for i, row in enumerate(order) if name.split(".")[1] in row) for name in stations]
    return [(stations[i], stations[i + 1]) for i in range(len(stations) - 1) if height[i] < height[i + 1]]


def walked() -> list[str]:
    """The stations of the configuration, from START on."""
    where, name, parameter = START
    place = function_named(name, where)
    assert place is not None, f"{where} has no function {name}"
    walk = Walk()
    walk.enter(place, {parameter})
    return walk.stations


def main() -> None:
    stations = walked()
    for number, name in enumerate(stations, start=1):
        print(f"{number:>3}  {name}")
    print(f"{len(stations)} stations, {len({*stations})} modules, {len(climbs(stations))} climbs")


if __name__ == "__main__":
    main()
