"""The presses of an installed kvpress: looked up by name, built from plain values, with errors as one line."""

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Any

import torch
from packaging.requirements import Requirement

from kvbench.errors import UserError, unknown
from kvbench.models.attention_interface import restore_registered
from kvbench.utils.text import first_line

INSTALL = "pip install -c constraints-kvpress.txt 'kvbench[kvpress]', in an environment of its own"
# kvpress's base classes, which compress nothing.
_ABSTRACT = {"BasePress", "ScorerPress"}
# After these, kvpress's own pipeline continues at the position after the tokens that the cache still holds.
_REROTATING = ("KeyRerotationPress", "FinchPress", "RestoreKVPress")


@cache
def kvpress() -> ModuleType:
    """The installed kvpress. Raises UserError if there is none, or if transformers is too new for it.

    Importing it wraps kvbench's attention functions, too, which are put back.
    """
    if importlib.util.find_spec("kvpress") is None:
        raise UserError(f"method=kvpress needs the package kvpress, which is not installed: {INSTALL}")
    for text in metadata.requires("kvpress") or []:
        requirement = Requirement(text)
        installed = metadata.version("transformers")
        if requirement.name == "transformers" and not requirement.specifier.contains(installed):
            raise UserError(
                f"kvpress {version()} needs {requirement}, but transformers {installed} is installed: {INSTALL}"
            )
    import kvpress

    restore_registered()
    return kvpress


def version() -> str:
    return metadata.version("kvpress")


def names() -> list[str]:
    """The names of all presses of the installed kvpress."""
    module = kvpress()
    classes = (value for value in vars(module).values() if inspect.isclass(value))
    return sorted({c.__name__ for c in classes if issubclass(c, module.BasePress)} - _ABSTRACT)


def build_press(name: str, arguments: Mapping[str, Any]) -> Any:
    """The press `name` with `arguments`, in which a press is its name or {NAME: arguments}.

    Raises UserError for an unknown press, an unknown or missing argument, and values that the press itself refuses.
    """
    if name not in names():
        raise unknown("press", name, names())
    press = getattr(kvpress(), name)
    allowed = inspect.signature(press).parameters
    for key in arguments:
        if key not in allowed:
            raise unknown(f"argument of {name}", key, allowed)
    with complaints(name):
        return press(**{key: _value(value) for key, value in arguments.items()})


def _value(value: object) -> object:
    """An argument with the presses that it names."""
    if isinstance(value, list):
        return [_value(item) for item in value]
    press = _named(value)
    return value if press is None else build_press(*press)


def _named(value: object) -> tuple[str, Mapping[str, Any]] | None:
    """Name and arguments of an argument that is a press; else None."""
    if isinstance(value, str) and value in names():
        return value, {}
    if isinstance(value, Mapping) and len(value) == 1 and (name := next(iter(value))) in names():
        return name, value[name] or {}
    return None


def title(name: str, arguments: Mapping[str, Any]) -> str:
    """A press with its inner presses, as tables name it: AdaKVPress(KnormPress)."""
    values = [item for value in arguments.values() for item in (value if isinstance(value, list) else [value])]
    inner = [title(*press) for value in values if (press := _named(value)) is not None]
    return f"{name}({', '.join(inner)})" if inner else name


def takes_ratio(press: Any) -> bool:
    """Whether the press has a compression ratio that can be set; others have none, or one in their parts."""
    if not hasattr(type(press), "compression_ratio"):
        return False
    try:
        press.compression_ratio = 0.5
    except AttributeError:
        return False
    return True


def rerotates(press: Any) -> bool:
    """Whether the press gives tokens new positions, so that the next token comes right after them."""
    return type(press).__name__ in _REROTATING and getattr(press, "rerotate_keys", True)


def refuse_decoding(press: Any) -> None:
    """Refuse a press that acts on generated tokens: kvbench's caches decode without kvpress."""
    module = kvpress()
    if isinstance(press, module.DecodingPress | module.PrefillDecodingPress) or getattr(press, "decoding", False):
        raise UserError(
            f"press {type(press).__name__} acts while decoding: kvbench runs presses that compress the prompt"
        )


@contextmanager
def complaints(name: str) -> Iterator[None]:
    """Raise errors inside a press as a one-line UserError that names the press."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # presses refuse by assert, ValueError, NotImplementedError, the hub's errors, …
        reason = first_line(error)
        if 'attn_implementation="eager"' in reason:
            reason += ": method.kvpress.attention=eager"
        raise UserError(f"press {name} of kvpress {version()}: {reason}") from error
