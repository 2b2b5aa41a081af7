"""The typed schemas of `records.jsonl`, `samples.jsonl` and manifests.

Evaluation builds records with `build`; every reader checks what it reads with `check_record`, `check_manifest` or
`check`. docs/records.md is made from the descriptions and units of the fields.
"""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from kvbench.errors import UserError
from kvbench.records.schema.engine import EngineRecord
from kvbench.records.schema.manifest import Config, JobNote, Manifest, SampleRow, Slurm
from kvbench.records.schema.method import MethodRecord
from kvbench.records.schema.probe import ProbeRecord
from kvbench.records.schema.record import Record
from kvbench.records.schema.serve import ServeRecord
from kvbench.records.schema.speed import SpeedRecord

__all__ = [
    "KINDS",
    "Config",
    "EngineRecord",
    "JobNote",
    "Manifest",
    "MethodRecord",
    "ProbeRecord",
    "Record",
    "SampleRow",
    "ServeRecord",
    "Slurm",
    "SpeedRecord",
    "build",
    "check",
    "check_manifest",
    "check_record",
    "kind_of",
]

KINDS: dict[str, type[Record]] = {
    "method": MethodRecord,
    "probe": ProbeRecord,
    "speed": SpeedRecord,
    "engine": EngineRecord,
    "serve": ServeRecord,
}


def kind_of(record: Mapping[str, Any]) -> str:
    """The kind of a record; for records of version 0.1.0, which lack `kind`, by the fields of each kind."""
    if (kind := record.get("kind")) is not None:
        return str(kind)
    return "probe" if "probe" in record else "speed" if "repeats_seconds" in record else "method"


def build(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A record to store: `fields` in their order, with the kind after the key.

    Raises UserError for a value that the schema does not allow, a score of NaN for example.
    """
    try:
        return check_record({"key": fields["key"], "kind": kind, **fields})
    except ValueError as error:
        raise UserError(
            f"sample {fields['sample']!r} under {fields['setting']!r} cannot become a record: {error}"
        ) from None


def check_record(record: object) -> dict[str, Any]:
    """The record itself. Raises ValueError with one line if its kind is unknown."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    kind = kind_of(record)
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    check(record, KINDS[kind])
    return record


def check_manifest(manifest: object) -> dict[str, Any]:
    """The manifest itself; one of 0.1.0 gets the key `requested`. Raises ValueError with one line for anything else."""
    if isinstance(manifest, dict) and "asked" in manifest:
        manifest = {("requested" if key == "asked" else key): value for key, value in manifest.items()}
    return check(manifest, Manifest)


def check(value: object, schema: type[BaseModel]) -> dict[str, Any]:
    """The value itself. Raises ValueError with one line if it does not fit the schema."""
    try:
        schema.__pydantic_validator__.validate_python(value)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        if not first["loc"]:
            raise ValueError("not a JSON object") from None
        if any(other["loc"][:1] == first["loc"][:1] for other in more):  # one for each part of a union
            raise ValueError(f"field {first['loc'][0]!r} has a value of the wrong type or size") from None
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"field {place!r}: {message[0].lower()}{message[1:]}") from None
    return cast(dict[str, Any], value)  # a schema accepts nothing else
