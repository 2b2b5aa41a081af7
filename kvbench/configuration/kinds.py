"""What a key of the configuration may be, as pydantic's validators: their ValueError says what would be right."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

NODE, TEXT, LIST, ONE, NULL = "a mapping {KEY: VALUE}", "a text", "a list", "a single value", "null"


def of_kind(*allowed: str) -> Callable[[object], Any]:
    """A function that returns values of these kinds as they are; a text is a single value too."""

    def check(value: object) -> object:
        found = _kind(value)
        if found not in allowed and not (found == TEXT and ONE in allowed):
            raise ValueError(" or ".join(allowed))
        return value

    return check


def _kind(value: object) -> str:
    kinds = ((Mapping, NODE), (str, TEXT), (list | tuple, LIST))
    return NULL if value is None else next((kind for type_, kind in kinds if isinstance(value, type_)), ONE)


def at_least(least: int, null: bool = False) -> Callable[[object], int | None]:
    """A function that returns integers of at least `least`, and None where `null`."""

    def number(value: object) -> int | None:
        if value is None and null:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"an integer of at least {least}")
        return value

    return number


def _word(value: object) -> object:
    """A word for a Literal; true and false as YAML has them."""
    return str(value).lower() if isinstance(value, bool) else value


def _text_or_null(value: object) -> str | None:
    return None if of_kind(ONE, NULL)(value) is None else str(value)


# A text among the annotations says in words what is allowed (kvbench.configuration.describe).

# Parameters of a class, which its signature defines: here a mapping, checked where the class is built.
Node = Annotated[dict[str, Any], PlainValidator(of_kind(NODE))]
NodeOrNull = Annotated[dict[str, Any] | None, PlainValidator(of_kind(NODE, NULL))]
Text = Annotated[str, PlainValidator(of_kind(TEXT))]
TextOrNull = Annotated[str | None, PlainValidator(of_kind(TEXT, NULL))]
NameOrNull = Annotated[str | None, PlainValidator(_text_or_null)]
CountOrNull = Annotated[int | None, PlainValidator(at_least(1, null=True)), "integer of at least 1 or `null`"]
Count = Annotated[int, PlainValidator(at_least(1)), "integer of at least 1"]
Single = Annotated[int, PlainValidator(of_kind(ONE))]
WORD = BeforeValidator(_word)
