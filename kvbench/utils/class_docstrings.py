"""What the docstrings of a package's classes say first, read from its files: to import them may take seconds."""

import ast
from functools import cache
from pathlib import Path


@cache
def first_paragraphs(folder: Path) -> dict[str, str]:
    """The first paragraph of the docstring of every class in the files below a folder, by the class's name."""
    modules = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))
    return {
        node.name: first_paragraph(ast.get_docstring(node))
        for module in modules
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }


def first_paragraph(docstring: str | None) -> str:
    """In one line, without the full stop at its end."""
    return " ".join((docstring or "").partition("\n\n")[0].split()).removesuffix(".")
