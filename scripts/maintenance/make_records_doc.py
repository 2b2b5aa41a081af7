"""Writes docs/records.md from the schema of records: python -m scripts.maintenance.make_records_doc"""

from collections.abc import Container
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kvbench.records.schema import KINDS, Config, Manifest, Record, SampleRow, Slurm

DOC = Path(__file__).parents[2] / "docs" / "records.md"
INTRO = """\
# Fields of records

Made from `kvbench/records/schema/` by `python -m scripts.maintenance.make_records_doc`. Some records lack a field whose
type ends in `?`; those of earlier versions lack a field with a version. `[…]` is a list, `{…}` an object with such
values. A line that does not match is set aside like a torn one, and `python -m kvbench records` reports it.

`records.jsonl` has one JSON object per line, of one of five kinds. A benchmark's own columns (task, length, depth, …)
come before `question`. A record's methods, their parts, its benchmark and metrics are of version 1 unless `parameters`
or the manifest's `versions` says otherwise. `load` adds `folder`, `started` and the manifest's information on weights,
code and hardware.
"""
WORDS = {Any: "any", str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def main() -> None:
    DOC.write_text(document(), encoding="utf-8")


def document() -> str:
    """docs/records.md."""
    parts = [INTRO, section("Every record", Record, ())]
    parts += [section(f"Kind `{kind}`", schema, Record.model_fields) for kind, schema in KINDS.items()]
    parts += [section("`samples.jsonl`", SampleRow, ())]
    parts += [section("`manifests/*.json`", Manifest, ()), section("The manifest's `config`", Config, ())]
    parts += [section("The manifest's `slurm`", Slurm, ())]
    return "\n".join(parts)


def section(title: str, schema: type[BaseModel], known: Container[str]) -> str:
    """A list of the schema's fields, without fields that are `known` from another section; fields that are the same in
    records of methods are only named."""
    lines = [f"## {title}", "", str(schema.__doc__).strip().replace("\n    ", "\n"), ""]
    fields = {name: field for name, field in schema.model_fields.items() if name not in known}
    other = schema in KINDS.values() and schema is not KINDS["method"]
    shared = {name: field for name, field in fields.items() if other and _as_of_a_method(name, field)}
    if shared:
        lines += [
            f"As in kind `method`: {', '.join(f'`{name}`' + _mark(field) for name, field in shared.items())}.",
            "",
        ]
    for name, field in fields.items():
        if name not in shared:
            extra = field.json_schema_extra
            when = f" (since {extra['since']})" if extra["since"] else ""
            kind = words(field.annotation) + _mark(field)
            unit = f", {extra['unit']}" if extra["unit"] not in ("", "1") else ""
            lines.append(f"- `{name}` ({kind}{unit}): {field.description}{when}")
    return "\n".join([*lines, ""])


def _as_of_a_method(name: str, field: FieldInfo) -> bool:
    """Whether a field refers to that of kind `method`, or has its words."""
    other = KINDS["method"].model_fields.get(name)
    return other is not None and field.description in ("see kind `method`", other.description)


def _mark(field: FieldInfo) -> str:
    return "" if field.is_required() or field.json_schema_extra["since"] else "?"


def words(annotation: object) -> str:
    """A field's type in words."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if annotation in WORDS:
        return WORDS[annotation]
    if kind is Annotated:
        return words(parts[0])
    if kind is Literal:
        return " / ".join(f"`{part}`" for part in parts)
    if kind in (Union, UnionType):
        return " / ".join(map(words, parts))
    if kind is list:
        return f"[{words(parts[0])}]"
    if kind is dict:
        return f"{{{words(parts[1])}}}"
    return "object" if isinstance(annotation, type) else "any"


if __name__ == "__main__":
    main()
