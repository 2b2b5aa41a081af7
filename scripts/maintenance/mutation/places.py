"""Places of a source file where one small change makes a fault, and the source with that change."""

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


@dataclass(frozen=True)
class Place:
    """A part of a file, from `start` to `end` in bytes, and the text that takes its place."""

    line: int
    statement: int  # the line on which its statement begins
    start: int
    end: int
    text: str
    kind: str
    scope: str  # the names of the classes and functions around it, with dots
    old: str  # what `text` replaces
    number: int  # among the same faults of its scope, from 1

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What a place keeps when its file moves and the lines around it change."""
        return self.scope, "".join(self.old.split()), "".join(self.text.split()), self.number


def changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The kinds of faults that fit one node, each with the node that takes its place."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield "comparison", ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BinOp() if type(node.op) in OPERATORS and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.BoolOp():
            yield "and/or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant", ast.Constant(node.value + 1)
        case ast.IfExp():
            yield "condition", ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement", ast.Pass()


def code(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and what is below it, without annotations and decorators, which compute nothing, and parts of f-strings,
    whose places Python 3.11 does not tell."""
    if isinstance(node, ast.JoinedStr):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from code(child)


def places(source: str) -> list[Place]:
    """All places of `source`, in its order."""
    raw = source.encode()
    begin = [0]
    for line in raw.splitlines(keepends=True):
        begin.append(begin[-1] + len(line))
    tree = ast.parse(source)
    scopes = list(scopes_of(tree))
    result, statement, numbers = [], 1, Counter()
    for node in code(tree):
        statement = node.lineno if isinstance(node, ast.stmt) else statement
        for kind, new in changed(node):
            text = ast.unparse(ast.fix_missing_locations(new))
            text = f"({text})" if isinstance(new, ast.expr) else text
            start = begin[node.lineno - 1] + node.col_offset
            end = begin[node.end_lineno - 1] + node.end_col_offset
            scope = next((name for first, last, name in reversed(scopes) if first <= node.lineno <= last), "")
            old = raw[start:end].decode()
            numbers[scope, old, text] += 1
            number = numbers[scope, old, text]
            result.append(Place(node.lineno, statement, start, end, text, kind, scope, old, number))
    return sorted(result, key=lambda place: (place.start, place.end, place.kind))


def scopes_of(node: ast.AST, around: str = "") -> Iterator[tuple[int, int, str]]:
    """First and last line and name of each class and function, the inner ones after the outer one."""
    for child in ast.iter_child_nodes(node):
        name = around
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{around}.{child.name}" if around else child.name
            yield child.lineno, child.end_lineno, name
        yield from scopes_of(child, name)


def of_tree(tree: Path) -> list[tuple[str, Place]]:
    """All places of the package in a checkout, each with its file."""
    files = sorted(path.relative_to(tree).as_posix() for path in (tree / "kvbench").rglob("*.py"))
    return [(name, place) for name in files for place in places((tree / name).read_text(encoding="utf-8"))]


def found_again(result: Path, tree: Path) -> list[tuple[str, Place]]:
    """The places of another checkout's result that `tree` has too, wherever their file lies; a place that fits several
    places of `tree` only where the file is the same."""
    by_key = defaultdict(list)
    for name, place in of_tree(tree):
        by_key[place.key].append((name, place))
    again = []
    for row in map(json.loads, result.read_text().splitlines()):
        candidates = by_key[of_row(row).key]
        again += (
            candidates
            if len(candidates) == 1
            else [candidate for candidate in candidates if candidate[0] == row["path"]]
        )
    return again


def of_row(row: dict[str, object]) -> Place:
    return Place(**{field.name: row[field.name] for field in fields(Place)})


def with_fault(source: str, place: Place) -> str:
    raw = source.encode()
    return (raw[: place.start] + place.text.encode() + raw[place.end :]).decode()
