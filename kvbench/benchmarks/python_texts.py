"""Texts in the Python source of a published benchmark, which is parsed but neither imported nor run."""

import ast
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.regular_files import read_text


def constants(path: Path) -> dict[str, object]:
    """The values of a module's variables that are literals, or f-strings of literals.

    Raises UserError, which names benchmark.prompts_file, where the file cannot be read or is not Python.
    """
    try:
        module = ast.parse(read_text(path))
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"benchmark.prompts_file={str(path)!r} cannot be read: {error.strerror}") from error
    except (ValueError, SyntaxError) as error:
        raise UserError(f"benchmark.prompts_file={str(path)!r} is not Python in UTF-8: {error}") from error
    values: dict[str, object] = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = _value(node.value, values)
            except (ValueError, KeyError):  # computed by code
                continue
    return values


def every_text(path: Path) -> Iterator[str]:
    """Every text in a Python file; of an f-string its template, with the expressions in braces."""
    for node in ast.walk(ast.parse(read_text(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield _joined(node, lambda value: "{" + ast.unparse(value) + "}")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def proven(what: str, text: str, official: str, source: Path) -> str:
    """`text`, if its SHA-256 is the `official` one. Raises UserError with the beginnings of both hashes."""
    if (actual := sha256(text)) != official:
        raise UserError(
            f"{what} in {source} is not the official one: its SHA-256 begins {actual[:16]}, not {official[:16]}"
        )
    return text


def _value(node: ast.expr, variables: dict[str, object]) -> object:
    if isinstance(node, ast.JoinedStr):
        return _joined(node, lambda value: str(variables[ast.unparse(value)]))
    return ast.literal_eval(node)


def _joined(node: ast.JoinedStr, filled: Callable[[ast.expr], str]) -> str:
    """The text of an f-string; `filled` gives the text of each expression in it."""
    return "".join(
        filled(part.value) if isinstance(part, ast.FormattedValue) else ast.literal_eval(part) for part in node.values
    )
