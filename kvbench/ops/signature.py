"""An operator's schema for torch's dispatcher, from the annotations of the reference."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import NoneType
from typing import Annotated, Any, get_type_hints

from torch import Tensor

from kvbench.ops.softmax import Scaling

Varying = Annotated[int, "SymInt"]  # an int that differs from step to step; compiled code accepts any value
TYPES: dict[Any, str] = {Tensor: "Tensor", Tensor | None: "Tensor?", Varying: "SymInt", int: "int", float: "float"}
TYPES |= {Scaling: "float"}  # a Softmax never reaches the dispatcher


class Signature:
    """The arguments of a reference: tensors, numbers, and named tuples of these, whose fields are separate arguments
    for the dispatcher. Raises TypeError for any other annotation.

    mutates   written parameters; a named tuple means all its tensors, `parameter.field` means one of them.
    """

    def __init__(self, reference: Callable[..., Any], mutates: Iterable[str] = ()):
        hints = get_type_hints(reference, include_extras=True)
        self.name, self.result, self.mutates = reference.__name__, hints.pop("return"), frozenset(mutates)
        self.hints = hints
        self.groups = [hint if _is_group(hint) else None for hint in hints.values()]
        self.defaults = tuple(parameter.default for parameter in inspect.signature(reference).parameters.values())
        self.scaling = next((place for place, hint in enumerate(hints.values()) if hint == Scaling), None)
        if unknown := {name.partition(".")[0] for name in self.mutates} - set(hints):
            raise TypeError(f"operator {self.name} has no parameter {', '.join(sorted(unknown))}")

    @property
    def schema(self) -> str:
        """`name(Tensor x, int bits) -> Tensor`; a written tensor is `Tensor(a0!)`."""
        parts: list[str] = []
        for name, hint in self.hints.items():
            fields = get_type_hints(hint, include_extras=True) if _is_group(hint) else {"": hint}
            for field, kind in fields.items():
                torch_type = self._torch_type(kind, name)
                if self.mutates & {name, f"{name}.{field}"} and torch_type.startswith("Tensor"):
                    torch_type = torch_type.replace("Tensor", f"Tensor(a{len(parts)}!)")
                parts.append(f"{torch_type} {name}{field and '_'}{field}")
        return f"{self.name}({', '.join(parts)}) -> {self._returned()}"

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call, completed by the defaults of missing arguments."""
        return args + self.defaults[len(args) :]

    def flat(self, args: Iterable[Any]) -> list[Any]:
        """The arguments of a call in the dispatcher's form, without named tuples."""
        return [part for arg in args for part in (arg if isinstance(arg, tuple) else (arg,))]

    def grouped(self, flat: Sequence[Any]) -> list[Any]:
        """The inverse of `flat`."""
        values = iter(flat)
        return [next(values) if kind is None else kind(*islice(values, len(kind._fields))) for kind in self.groups]

    def _returned(self) -> str:
        if _is_group(self.result):
            return f"({', '.join('Tensor' for _ in self.result._fields)})"
        return "()" if self.result is NoneType else self._torch_type(self.result, "return")

    def _torch_type(self, hint: Any, name: str) -> str:
        if hint not in TYPES:
            raise TypeError(f"operator {self.name}: {name} must be a tensor, a number or a named tuple of these")
        return TYPES[hint]


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple)
