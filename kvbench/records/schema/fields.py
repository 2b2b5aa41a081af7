"""The types of values in records and manifests, and fields with a meaning and a unit."""

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf
from pydantic.config import JsonDict

from kvbench.utils.interpolations import check_resolved

Text = InstanceOf[str]  # also text that UTF-8 cannot hold, with a lone surrogate from a broken data file
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # as a column of a data frame
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]
MOST_NESTED = 254  # lists and objects inside each other: deeper ones could end in a RecursionError


@lru_cache(4096)  # thousands of records share a few
def _json_object(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    check_resolved(value)
    return text


def _plain(value: Any) -> Any:
    level = [value]
    for _ in range(MOST_NESTED + 1):
        level = [part for node in level for part in _inside(node)]
        if not level:
            return value
    raise ValueError(f"more than {MOST_NESTED} lists and objects inside each other")


def _inside(value: Any) -> Iterable[Any]:
    """The parts of a list or object. Raises ValueError for what JSON or a data frame's column does not have."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"the key {wrong[0]!r} is not a text")
        return value.values()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("integer out of range")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a finite number")
    if not isinstance(value, int | float | str | None):
        raise ValueError(f"{type(value).__name__} is not a JSON type")
    return ()


def _settled(value: Any) -> Any:
    check_resolved(value)
    return value


# Of a configuration in which nothing is left to be resolved when it is read again.
Settled = BeforeValidator(_settled)
JsonObject = Annotated[Text, AfterValidator(_json_object)]
Plain = Annotated[Any, AfterValidator(_plain)]  # values of JSON, with numbers that fit a data frame's column


def field(meaning: str, unit: str = "", *, since: str = "", optional: bool = False, always: bool = False) -> Any:
    """A field with its meaning and unit.

    `optional`: some records lack it; `since`: those of earlier versions do. `always`: only older records lack an
    optional field; this version writes it in each.
    """
    extra: JsonDict = {"unit": unit, "since": since, "always": always or not optional}
    if optional or since:
        return Field(default=None, description=meaning, json_schema_extra=extra)
    return Field(description=meaning, json_schema_extra=extra)


class Strict(BaseModel):
    """Values are of exactly the field's type; fields that are not named here may stand beside them."""

    model_config = ConfigDict(strict=True, extra="allow")

    @classmethod
    def always(cls) -> frozenset[str]:
        """The fields that this version writes in each record or manifest."""
        about = {name: info.json_schema_extra for name, info in cls.model_fields.items()}
        return frozenset(name for name, extra in about.items() if isinstance(extra, dict) and extra.get("always"))

    @classmethod
    def due(cls, node: Mapping[str, Any]) -> frozenset[str]:
        """The fields that this version writes where it writes the others of `node`."""
        return cls.always()
