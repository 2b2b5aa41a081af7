"""Kinds of values of the configuration's keys, as pydantic's validators, whose ValueError names what is allowed."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

NODE, TEXT, LIST, SINGLE, NULL = "a mapping {KEY: VALUE}", "a text", "a list", "a single value", "null"


def of_kind(*allowed: str) -> Callable[[object], Any]:
    """A function that returns values of these kinds as they are; a text is a single value too."""

    def check(value: object) -> object:
        kind = _kind(value)
        if kind not in allowed and not (kind == TEXT and SINGLE in allowed):
            raise ValueError(" or ".join(allowed))
        return value

    return check


def _kind(value: object) -> str:
    kinds = ((Mapping, NODE), (str, TEXT), (list | tuple, LIST))
    return NULL if value is None else next((kind for type_, kind in kinds if isinstance(value, type_)), SINGLE)


def at_least(least: int, null: bool = False, most: int | None = None) -> Callable[[object], int | None]:
    """A function that returns integers of at least `least` and at most `most`, and None if `null`."""
    allowed = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"

    def number(value: object) -> int | None:
        if value is None and null:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(allowed)
        if most is not None and value > most:
            raise ValueError(allowed)
        return value

    return number


def _word(value: object) -> object:
    """A word for a Literal; booleans become YAML's true and false."""
    return str(value).lower() if isinstance(value, bool) else value


def _text_or_null(value: object) -> str | None:
    return None if of_kind(SINGLE, NULL)(value) is None else str(value)


# A text among the annotations describes the allowed values (kvbench.configuration.describe).

# Parameters of a class: a mapping that is checked when the class is built.
Node = Annotated[dict[str, Any], PlainValidator(of_kind(NODE))]
NodeOrNull = Annotated[dict[str, Any] | None, PlainValidator(of_kind(NODE, NULL))]
Text = Annotated[str, PlainValidator(of_kind(TEXT))]
TextOrNull = Annotated[str | None, PlainValidator(of_kind(TEXT, NULL))]
NameOrNull = Annotated[str | None, PlainValidator(_text_or_null)]
CountOrNull = Annotated[int | None, PlainValidator(at_least(1, null=True)), "integer of at least 1 or `null`"]
MOST_SHARDS = 4096  # of a run: `kvbench status` has a row for each, and each leaves a manifest
Shards = Annotated[int, PlainValidator(at_least(1, most=MOST_SHARDS)), f"integer from 1 to {MOST_SHARDS}"]
Single = Annotated[int, PlainValidator(of_kind(SINGLE))]
WORD = BeforeValidator(_word)
