"""Places of a source file where one small change makes a fault, and the source with that change."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

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
    lines = source.encode().splitlines(keepends=True)
    begin = [0]
    for line in lines:
        begin.append(begin[-1] + len(line))
    found, statement = [], 1
    for node in code(ast.parse(source)):
        statement = node.lineno if isinstance(node, ast.stmt) else statement
        for kind, new in changed(node):
            text = ast.unparse(ast.fix_missing_locations(new))
            expression = isinstance(new, ast.expr)
            start = begin[node.lineno - 1] + node.col_offset
            end = begin[node.end_lineno - 1] + node.end_col_offset
            found.append(Place(node.lineno, statement, start, end, f"({text})" if expression else text, kind))
    return sorted(found, key=lambda place: (place.start, place.end, place.kind))


def with_fault(source: str, place: Place) -> str:
    raw = source.encode()
    return (raw[: place.start] + place.text.encode() + raw[place.end :]).decode()
