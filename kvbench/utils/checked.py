"""Dataclasses that check their fields: types state the constraints, and a bad value is an error of one line.

    @checked
    class WindowAttention(Scoring):
        window: Positive = 32
        pooling: Literal["max", "avg"] = "max"

`WindowAttention(window=0)` raises UserError("window=0 must be an integer of at least 1"). Checks are strict: `true` is
no number, "8" is no integer; an integer is a float, too. Constraints between two fields belong to `__post_init__`.
Subclasses of `Checked` are checked under a plain `@dataclass`, too.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import NoneType
from typing import Annotated, Any, Literal, Self, dataclass_transform, get_args, get_origin

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from kvbench.errors import UserError, unknown

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]  # unlike a Fraction, never 0
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _as_names(value: object) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("a name or a list of names")
    return list(names)


# A single name becomes a list. As here, a validator's ValueError names the allowed values.
Names = Annotated[list[str], BeforeValidator(_as_names)]

_CONFIG = ConfigDict(strict=True, arbitrary_types_allowed=True, extra="forbid")
_KINDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "list_type": "a list",
    "tuple_type": "a tuple",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "of at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "of at most"),
    "less_than": ("lt", "below"),
}


@dataclass_transform(field_specifiers=(Field,))
def checked(cls: type | None = None, *, prefix: str = "", **options: Any) -> Any:
    """A dataclass (with the `options` of `dataclasses.dataclass`) that raises UserError for a value that a field's type
    does not allow. The message has `prefix` before the field's name: "benchmark." makes "benchmark.window=0 …".
    """

    def decorate(cls: type) -> type:
        form: type[Any] = dataclass(cls, config=_CONFIG, **options)
        form.__init__ = _one_line(form.__init__, form, prefix)
        return form

    return decorate if cls is None else decorate(cls)


class Checked:
    """A base of classes whose fields are checked however they are declared.

    The `__init__` that a plain `@dataclass` makes checks nothing, and is there only after the class: the first object
    replaces it.
    """

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        for kind in cls.__mro__:
            _check_plain(kind)
            _check_decorated(kind)
        if (args or kwargs) and cls.__init__ is object.__init__:
            raise TypeError(f"{cls.__name__}() takes no arguments")  # what `object` says to a class without `__new__`
        return super().__new__(cls)


def _check_plain(kind: type[Any]) -> None:
    """Replace the `__init__` that `dataclasses.dataclass` has written into a class."""
    written = vars(kind).get("__init__", object.__init__)
    if getattr(getattr(written, "__code__", None), "co_filename", "") != "<string>":
        return
    try:
        call = validate_call(config=_CONFIG)(written)
    except Exception:  # of many kinds, for an annotation that cannot be checked
        return

    @wraps(written)
    def __init__(self: object, *args: object, **kwargs: object) -> None:
        try:
            call(self, *args, **kwargs)
        except ValidationError as error:
            raise explained(
                [mistake | {"loc": _after_self(mistake["loc"])} for mistake in error.errors()], kind
            ) from None

    setattr(kind, "__init__", __init__)  # noqa: B010 - mypy refuses an assignment


def _check_decorated(kind: type[Any]) -> None:
    """Raise UserError for a class that sets a field of its base without being a dataclass, which would change nothing:
    the `__init__` of the base sets the default of the base.
    """
    if "__dataclass_fields__" in vars(kind) or "__init__" in vars(kind):
        return
    inherited = getattr(kind, "__dataclass_fields__", {})
    if names := [name for name in vars(kind) if name in inherited and inherited[name].init]:
        raise UserError(f"{kind.__name__} sets {', '.join(names)} without effect: put @dataclass above the class")


def _after_self(loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place of an error in the arguments that follow `self`."""
    return (loc[0] - 1, *loc[1:]) if isinstance(loc[0], int) else loc


def _one_line(init: Callable[..., Any], form: type[Any], prefix: str) -> Callable[..., Any]:
    @wraps(init)
    def __init__(self: object, *args: object, **kwargs: object) -> None:
        try:
            init(self, *args, **kwargs)
        except ValidationError as error:
            raise explained(error.errors(), form, prefix) from None

    return __init__


def check_given(form: type[Any], values: Mapping[str, object], prefix: str = "") -> None:
    """Raise UserError for the first of `values` that a field of a checked dataclass does not allow. Missing fields are
    no mistake.
    """
    try:
        form.__init__.__wrapped__(object.__new__(form), **values)  # pydantic's __init__
    except ValidationError as error:
        mistakes = [mistake for mistake in error.errors() if not mistake["type"].startswith("missing")]
        if mistakes:
            raise explained(mistakes, form, prefix) from None


def explained(mistakes: Sequence[Any], form: type[Any], prefix: str = "") -> UserError:
    """The first of pydantic's mistakes in the arguments of a dataclass, as kvbench reports mistakes."""
    errors = [mistake | {"loc": _named(form, mistake["loc"])} for mistake in mistakes]
    first = errors[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), UserError):
        return cause  # raised by a __post_init__
    field, *inner = first["loc"] or (form.__name__,)
    same_field = [error for error in errors if error["loc"][:1] == first["loc"][:1]]  # one for each part of a union
    name, value = f"{prefix}{field}", first["input"]
    if first["type"].startswith("missing"):
        return UserError(f"{name} is missing")
    if first["type"] in ("unexpected_keyword_argument", "unexpected_positional_argument"):
        return unknown(
            f"key in {prefix[:-1]}" if prefix else f"parameter of {form.__name__}", str(field), _fields(form)
        )
    item = inner[0] if inner and isinstance(inner[0], int) else None
    if item is not None:
        name = f"item {item + 1} of {name}"
    texts = _literals(form, str(field))
    if first["type"] == "literal_error" and len(same_field) == 1 and texts:
        return unknown(name, str(value), texts)
    allowed = list(dict.fromkeys(_allowed(error, form) for error in same_field))
    # for int | float under the same bounds, "a number" is enough
    wider = {text: text.replace("an integer", "a number") for text in allowed if text.startswith("an integer")}
    allowed = [text for text in allowed if wider.get(text) not in allowed]
    annotation = form.__dataclass_fields__[field].type if field in form.__dataclass_fields__ else None
    if item is None and NoneType in get_args(annotation):
        allowed.append("null")
    return UserError(f"{name}={value!r} must be {' or '.join(allowed)}")


def _named(form: type[Any], loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place of an error, with a field's name instead of a positional argument's index."""
    fields = _fields(form)
    return (fields[loc[0]], *loc[1:]) if loc and isinstance(loc[0], int) and loc[0] < len(fields) else loc


def _fields(form: type[Any]) -> list[str]:
    return [name for name, field in form.__dataclass_fields__.items() if field.init]


def _literals(form: type[Any], field: str) -> list[str]:
    """The texts that a field of Literal type allows; empty if it allows anything else besides null."""
    parts = _annotations(form, (field,))
    values = [value for part in parts if get_origin(part) is Literal for value in get_args(part)]
    if not all(isinstance(value, str) for value in values):
        return []
    return [*values, "null"] if NoneType in parts else values


def _allowed(error: dict[str, Any], form: type[Any]) -> str:
    """The values that are allowed in the place of an error."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{_number(form, error['loc'])} {_bounds(form, error['loc']) or f'{words} {context[key]:.12g}'}"
    if kind in _KINDS:
        bounds = _bounds(form, error["loc"]) if kind in ("int_type", "float_type", "int_from_float") else ""
        return f"{_KINDS[kind]} {bounds}".rstrip()
    if kind in ("is_instance_of", "dataclass_exact_type"):
        return f"a {context.get('class') or context['class_name']}"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "too_short":
        return f"a list of at least {context['min_length']}"
    if kind == "value_error":
        return str(context["error"])
    message: str = error["msg"]
    return message[0].lower() + message[1:]


def _annotations(form: type[Any], loc: tuple[Any, ...]) -> list[Any]:
    """The field's annotation and all its parts, including those of unions and lists."""
    field = form.__dataclass_fields__.get(loc[0]) if loc else None
    parts, todo = [], [] if field is None else [field.type]
    while todo:
        part = todo.pop()
        parts.append(part)
        todo += [arg for arg in get_args(part) if not isinstance(arg, str)]
        todo += list(getattr(part, "__metadata__", ()))
    return parts


def _number(form: type[Any], loc: tuple[Any, ...]) -> str:
    kinds = _annotations(form, loc)
    return "an integer" if int in kinds and float not in kinds else "a number"


def _bounds(form: type[Any], loc: tuple[Any, ...]) -> str:
    """All bounds of a number in words: "of at least 1", "above 0 and at most 1", "from 0 to 1"."""
    bounds: dict[str, float] = {}
    for part in _annotations(form, loc):
        for rule in getattr(part, "metadata", ()):
            bounds |= {key: value for key, _ in _BOUNDS.values() if (value := getattr(rule, key, None)) is not None}
    if {"ge", "le"} <= bounds.keys():
        return f"from {bounds['ge']:.12g} to {bounds['le']:.12g}"
    words = dict(_BOUNDS.values())
    lower = next((f"{words[key]} {bounds[key]:.12g}" for key in ("ge", "gt") if key in bounds), "")
    upper = next((f"{words[key]} {bounds[key]:.12g}" for key in ("le", "lt") if key in bounds), "")
    return f"{lower} and {upper.removeprefix('of ')}" if lower and upper else lower or upper
