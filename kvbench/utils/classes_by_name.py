"""Classes of a package by name, in whatever file they are: a new file needs no line in its package's `__init__`."""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from kvbench.utils.targets import imported

CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)


def class_below(package: str, name: str) -> Any:
    """The class `name` of one of a package's files, which is imported: for the package's `__getattr__`.

    Raises AttributeError if no file has it, or if several have one.
    """
    modules = places(package).get(name, [])
    if len(modules) == 1:
        return imported(f"{modules[0]}.{name}")
    several = f": {' and '.join(modules)} each have one" if modules else ""
    raise AttributeError(f"module {package!r} has no attribute {name!r}{several}", name=name)


@cache
def places(package: str) -> dict[str, list[str]]:
    """The modules below a package that define each class whose name begins with a capital; none is imported."""
    modules: dict[str, list[str]] = {}
    for folder in map(Path, sys.modules[package].__path__):
        for path in sorted(folder.rglob("*.py")):
            module = ".".join([package, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
            for name in CLASS.findall(path.read_text(encoding="utf-8")):
                modules.setdefault(name, []).append(module)
    return modules
