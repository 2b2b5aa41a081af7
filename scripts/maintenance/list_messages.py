"""Every message that a user of kvbench can meet, one a line: file, line and text, with what is filled in as {…}.

    python -m scripts.maintenance.list_messages            # to be read aloud before a release
    python -m scripts.maintenance.list_messages run/early  # of the files whose path contains this

Listed are the texts of errors and warnings, and those that are printed; not help texts, captions or column names.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Calls whose texts a user meets beside those of what is raised: errors that are kept for later, and what writes to the
# terminal.
CALLS = {"UserError", "Incomplete", "RuleBroken", "Failure", "unknown", "warn", "warn_once", "print", "print_line"}


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every message in a module's source, in order."""
    tree = ast.parse(source)
    raised = {node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    calls = (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and (node in raised or called(node) in CALLS)
    )
    for call in sorted(calls, key=lambda node: node.lineno):
        texts = [written for argument in call.args for written in text_of(argument)]
        if texts:
            yield call.lineno, " ".join(texts)


def called(call: ast.Call) -> str:
    """The last name of what is called: print of err.print."""
    return ast.unparse(call.func).rpartition(".")[2]


def text_of(node: ast.expr) -> Iterator[str]:
    """The strings that an argument is made of, as they are read."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else part.value
            for part in node.values
        )
    elif isinstance(node, ast.BinOp | ast.IfExp | ast.BoolOp):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from text_of(child)


def main(part: str = "") -> None:
    for path in sorted((ROOT / "kvbench").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, text in messages(path.read_text(encoding="utf-8")) if part in name else ():
            print(f"{name}:{line}  {' '.join(text.split())}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
