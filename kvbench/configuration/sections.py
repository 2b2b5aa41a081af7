"""The sections of the configuration whose keys are all known: `prefill`, `decode` and `wandb`."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import PlainValidator

from kvbench.configuration.kinds import NODE, WORD, CountOrNull, NameOrNull, NodeOrNull, of_kind
from kvbench.errors import UserError
from kvbench.utils.checked import checked

Form = TypeVar("Form")


def _batch(value: object) -> str:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if value not in ("auto", "all") and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise ValueError("auto, all or an integer of at least 1")
    return str(value)


@checked(prefix="prefill.", frozen=True)
class Prefill:
    chunk: CountOrNull


@checked(prefix="decode.", frozen=True)
class Decode:
    compress: NodeOrNull
    batch: Annotated[str, PlainValidator(_batch), "`auto`, `all` or an integer of at least 1"]  # digits, for a number
    engine: Annotated[Literal["auto", "graph", "fused", "eager"], WORD]


@checked(prefix="wandb.", frozen=True)
class Wandb:
    mode: Annotated[Literal["disabled", "offline", "online"], WORD]
    project: NameOrNull
    entity: NameOrNull


def check_keys(form: type[Any], node: Mapping[str, object], prefix: str = "") -> None:
    """Raise UserError for the first missing key of `form`; only `~KEY` can have removed it."""
    for item in fields(form):
        if item.name not in node and item.default is MISSING:
            raise UserError(f"{prefix}{item.name} is missing: leave out ~{prefix}{item.name}")


def section(form: type[Form], prefix: str) -> PlainValidator:
    """A validator that turns a mapping into an object of `form`, whose keys begin with `prefix` on the command line."""

    def parse(value: object) -> Form:
        if isinstance(value, form):
            return value
        node = of_kind(NODE)(value)
        check_keys(form, node, prefix)
        return form(**node)

    return PlainValidator(parse)
