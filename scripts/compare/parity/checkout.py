"""Load a single file of a checkout, whatever its imports need, and read the checkout's commit."""

import builtins
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType


class Placeholder:
    """Stands for a name that this environment does not have: a decorator, a base class, or never used."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getitem__(self, key):
        return self

    def __mro_entries__(self, bases):
        return (object,)


class LenientBuiltins(dict):
    """Builtins of a loaded module: names that a failed `import *` did not bring are placeholders."""

    def __missing__(self, name: str):
        return Placeholder()


class LenientModule:
    """A module, or None for a missing one, whose missing names are placeholders."""

    def __init__(self, module: ModuleType | None):
        self._module = module

    def __getattr__(self, name: str):
        if self._module is None:
            return Placeholder()
        value = getattr(self._module, name, None)
        if value is None:
            return Placeholder()
        wrap = isinstance(value, ModuleType) and value.__name__.startswith("transformers")
        return LenientModule(value) if wrap else value


def load(root: Path, file: str, **siblings: ModuleType) -> ModuleType:
    """The module in `root / file`; `siblings` are what it imports by name (dots as underscores) from its own project.

    Imports that fail give placeholders, so that functions which do not need them can be called.
    """

    def lenient_import(name, globals=None, locals=None, fromlist=(), level=0):
        if name.replace(".", "_") in siblings:
            return siblings[name.replace(".", "_")]
        try:
            if not fromlist or "*" in fromlist:
                return builtins.__import__(name, globals, locals, fromlist, level)
            return LenientModule(importlib.import_module(name))
        except ImportError:
            return ModuleType(name) if "*" in (fromlist or ()) else LenientModule(None)

    path = root / file
    module = ModuleType(f"released.{root.name}.{path.stem}")
    module.__file__ = str(path)
    quiet = {"__import__": lenient_import, "print": lambda *args, **kwargs: None}
    module.__dict__["__builtins__"] = LenientBuiltins({**vars(builtins), **quiet})
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def commit(root: Path) -> str:
    """The short commit and date of a checkout."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%h (%cs)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
