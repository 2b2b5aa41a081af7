"""The name of the argument through which a model or a layer takes its cache: transformers 5.24 changed it."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import signature
from typing import Any

from torch import nn

NAMES = ("cache", "past_key_values")  # since transformers 5.24, and before


def name_of(module: nn.Module) -> str:
    """`cache` if the module's forward pass has such an argument, else `past_key_values`."""
    return _name_of(type(module).forward)


def as_argument(module: nn.Module, cache: object) -> dict[str, Any]:
    """A cache as a keyword argument of the module's forward pass."""
    return {name_of(module): cache}


def by_name(module: nn.Module, args: Sequence[object]) -> dict[str, Any]:
    """Positional arguments of the module's forward pass, by their names."""
    _, *names = _names_of(type(module).forward)  # the first is the module itself
    return dict(zip(names, args, strict=False))


@lru_cache
def _name_of(forward: Callable[..., Any]) -> str:
    return next((name for name in NAMES if name in _names_of(forward)), NAMES[-1])


@lru_cache
def _names_of(forward: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a forward pass's arguments; asked for at every token that a block decodes."""
    return tuple(signature(forward).parameters)
