"""Classes of a package by their names, wherever in its files they stand: a new file needs no line in its package."""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from kvbench.utils.targets import imported

CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)


def class_below(package: str, name: str) -> Any:
    """What a package's `__getattr__` returns: the class `name` of one of its files, which is imported.

    AttributeError where no file has it, or where several have one.
    """
    modules = places(package).get(name, [])
    if len(modules) == 1:
        return imported(f"{modules[0]}.{name}")
    several = f": {' and '.join(modules)} each have one" if modules else ""
    raise AttributeError(f"module {package!r} has no attribute {name!r}{several}", name=name)


@cache
def places(package: str) -> dict[str, list[str]]:
    """The modules below a package that define each class whose name begins with a capital; none is imported."""
    found: dict[str, list[str]] = {}
    for folder in map(Path, sys.modules[package].__path__):
        for path in sorted(folder.rglob("*.py")):
            module = ".".join([package, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
            for name in CLASS.findall(path.read_text(encoding="utf-8")):
                found.setdefault(name, []).append(module)
    return found
