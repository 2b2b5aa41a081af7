"""One pass of a model as a list of calls, made again with other inputs and without the model's modules.

It is no graph: Python makes every call, and what kvbench's caches do may differ from token to token.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from types import EllipsisType, NoneType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvbench.models.recorded_calls import Call

FIXED = (int, float, str, bool, NoneType, EllipsisType, torch.dtype, torch.device, torch.memory_format)
UNCHANGED = {"to", "contiguous", "float"}  # methods that may return the tensor itself, and write nothing


class UnfitError(Exception):
    """Why a pass cannot be repeated from a list of calls."""


@dataclass(frozen=True)
class Value:
    """Something that is an input or that a call returns; anything else in a call is the same for every token."""

    number: int


class Step(NamedTuple):
    """A call: of arguments, each a `Value` or what it is itself."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    result: Value
    opaque: bool = False


class RepeatedPass:
    """The calls of a recorded pass, to be made again with other inputs.

    Raises UnfitError where a call has something that is neither an input, nor returned by another call, nor a part of
    the model.
    """

    def __init__(self, calls: Sequence[Call], inputs: Sequence[Any], output: Tensor, parts: Iterable[Any]):
        """`inputs` and `output`: the objects of the recording. `parts`: the model's tensors and modules."""
        self.values = {id(x): Value(number) for number, x in enumerate(inputs)}
        self.parts = {id(x) for x in parts}
        self.inputs = self.count = len(inputs)
        self.steps: list[Step] = []
        self.signature: list[Any] = []  # equal in two recordings of which one repeats the other
        for call in calls:
            self._add(call)
        if id(output) not in self.values:
            raise UnfitError("no call returned its result")
        self.output = self.values[id(output)]
        self._assign_registers()
        del self.values, self.parts

    def __call__(self, *inputs: Any) -> Any:
        registers = self.registers.copy()
        registers[: self.inputs] = inputs
        for function, arguments, result in self.moves:
            registers[result] = function(*arguments(registers))
        return registers[self.output_register]

    def reproduces(self, inputs: Sequence[Any], calls: Sequence[Call], output: Tensor) -> bool:
        """Whether it computes, bit for bit, what the caches got in another recorded pass, and that pass's output.

        The caches are not called: they return what they returned then.
        """
        values: dict[int, Any] = dict(enumerate(inputs))
        recorded = iter(call for call in calls if call.opaque)
        for step in self.steps:
            arguments = [values[x.number] if isinstance(x, Value) else x for x in step.arguments]
            if not step.opaque:
                values[step.result.number] = step.function(*arguments)
                continue
            call = next(recorded)
            if not all(map(_same, arguments, _arguments(call).varying)):
                return False
            values[step.result.number] = call.out
        return _same(values[self.output.number], output)

    def _add(self, call: Call) -> None:
        name = getattr(call.function, "__name__", "")
        if name in UNCHANGED and call.args and call.out is call.args[0]:
            return
        varying, names, fixed = _arguments(call)
        arguments = [self._argument(x) for x in varying]
        function = partial(_named, call.function, names) if names else call.function
        self.signature.append((call.function, _compared(arguments), names, fixed))
        result = self._step(partial(function, **fixed) if fixed else function, arguments, call.opaque)
        if not (call.opaque or call.out is None or _holds_tensors(call.out)):
            raise UnfitError(f"{name} returns no tensor")
        self._name(call.out, result)

    def _argument(self, x: Any) -> Any:
        if id(x) in self.values:
            return self.values[id(x)]
        if _fixed(x) or id(x) in self.parts:
            return x
        if type(x) in (tuple, list):
            arguments = [self._argument(part) for part in x]
            self.signature.append((type(x), _compared(arguments)))
            return self._step(_tuple if type(x) is tuple else _list, arguments)
        raise UnfitError(f"a call has a {type(x).__name__} that is neither the model's nor returned by a call")

    def _step(self, function: Callable[..., Any], arguments: Sequence[Any], opaque: bool = False) -> Value:
        result = Value(self.count)
        self.steps.append(Step(function, arguments, result, opaque))
        self.count += 1
        return result

    def _name(self, out: Any, value: Value) -> None:
        """From now on `out`, and what it holds, are these values."""
        if _fixed(out):
            return
        self.values[id(out)] = value
        if isinstance(out, (tuple, list)):
            for place, part in enumerate(out):
                if not _fixed(part):
                    self._name(part, self._step(itemgetter(place), [value]))

    def _assign_registers(self) -> None:
        """Every value gets a register until the last call that has it, every other argument one of its own."""
        last = {self.output.number: len(self.steps)}
        for at, step in reversed(list(enumerate(self.steps))):
            for x in (*step.arguments, step.result):
                if isinstance(x, Value):
                    last.setdefault(x.number, at)
        self.registers: list[Any] = [None] * self.inputs
        self.moves: list[tuple[Callable[..., Any], Callable[[list[Any]], Sequence[Any]], int]] = []
        register = {number: number for number in range(self.inputs)}
        free: list[int] = []
        for at, step in enumerate(self.steps):
            places = [register[x.number] if isinstance(x, Value) else self._register(x) for x in step.arguments]
            register[step.result.number] = place = free.pop() if free else self._register(None)
            self.moves.append((step.function, _getter(places), place))
            ended = {x.number for x in (*step.arguments, step.result) if isinstance(x, Value)}
            free += [register[number] for number in ended if number >= self.inputs and last[number] == at]
        self.output_register = register[self.output.number]

    def _register(self, x: Any) -> int:
        self.registers.append(x)
        return len(self.registers) - 1


def _getter(places: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """What takes the arguments from the registers; of one place too as a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


class Arguments(NamedTuple):
    """Those of a call that may vary, first by position and then by these names, and the others by name."""

    varying: list[Any]
    names: tuple[str, ...]
    fixed: dict[str, Any]


def _arguments(call: Call) -> Arguments:
    fixed = {name: x for name, x in call.kwargs.items() if _fixed(x)}
    names = tuple(name for name in call.kwargs if name not in fixed)
    return Arguments([*call.args, *(call.kwargs[name] for name in names)], names, fixed)


def _compared(arguments: Sequence[Any]) -> list[Any]:
    """Arguments as they are compared: parts of the model by identity."""
    return [x if isinstance(x, Value) or _fixed(x) else id(x) for x in arguments]


def _named(function: Callable[..., Any], names: Sequence[str], *arguments: Any, **fixed: Any) -> Any:
    by_place = len(arguments) - len(names)
    return function(*arguments[:by_place], **dict(zip(names, arguments[by_place:], strict=True)), **fixed)


def _fixed(x: Any) -> bool:
    """Whether it is a number, a name, or a collection of such."""
    if isinstance(x, (tuple, list)):
        return all(map(_fixed, x))
    if isinstance(x, slice):
        return _fixed((x.start, x.stop, x.step))
    return isinstance(x, FIXED)


def _holds_tensors(out: Any) -> bool:
    return isinstance(out, Tensor) or (isinstance(out, (tuple, list)) and any(map(_holds_tensors, out)))


def _same(x: Any, other: Any) -> bool:
    """Whether tensors are equal bit for bit; anything else is not compared."""
    if not isinstance(x, Tensor):
        return True
    return bool(x.shape == other.shape and x.dtype == other.dtype and torch.equal(x, other))


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def _list(*parts: Any) -> list[Any]:
    return list(parts)
