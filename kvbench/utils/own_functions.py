"""Functions of a user's class in place of kvbench's own: they are called with the same arguments."""

from collections.abc import Iterator
from inspect import Parameter, getattr_static, isfunction, signature
from types import FunctionType
from typing import NamedTuple

from kvbench.errors import UserError
from kvbench.utils.own_code import is_own_function


class Replaced(NamedTuple):
    name: str
    own: FunctionType
    base: FunctionType  # kvbench's


def check_functions(kind: type) -> None:
    """Raise UserError for a function of a user's or a plug-in's class that does not take what kvbench's base needs."""
    for name, own, base in _replaced(kind):
        needed = [part.name for part in signature(base).parameters.values() if _is_needed(part)]
        try:
            signature(own).bind(*needed)
        except TypeError as error:
            called = f"{name}({', '.join(needed[1:])})"
            raise UserError(f"{own.__qualname__}{signature(own)} is called as {called}: {error}") from error


def _replaced(kind: type) -> Iterator[Replaced]:
    """The class's own functions with `self` and a public name that kvbench has, too."""
    for name in dir(kind):
        own = getattr_static(kind, name)
        if name.startswith("_") or not isfunction(own) or not is_own_function(own):
            continue
        for base in (vars(owner)[name] for owner in kind.__mro__ if name in vars(owner)):
            if isfunction(base) and not is_own_function(base):
                yield Replaced(name, own, base)
                break


def _is_needed(part: Parameter) -> bool:
    return part.default is part.empty and part.kind in (part.POSITIONAL_ONLY, part.POSITIONAL_OR_KEYWORD)
