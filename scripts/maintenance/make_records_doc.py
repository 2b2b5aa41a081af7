"""Writes docs/records.md from the schema of records: python -m scripts.maintenance.make_records_doc"""

from collections.abc import Container
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from kvbench.records.schema import KINDS, Config, Manifest, Record, SampleRow, Slurm

DOC = Path(__file__).parents[2] / "docs" / "records.md"
INTRO = """\
# Fields of records

Made from `kvbench/records/schema/` by `python -m scripts.maintenance.make_records_doc`. A field that is optional is
missing from some records; one with a version is missing from those of earlier versions. Everything else is always
there. A line that does not match is set aside like a torn one, and `python -m kvbench records` reports it.

`records.jsonl` has one JSON object per line, of one of four kinds. A benchmark's own columns (task, length, depth, …)
come before `question`. A record's methods, their parts, its benchmark and metrics are of version 1 unless `parameters`
or the manifest's `versions` says otherwise. `load` adds `folder`, `started` and the manifest's information on weights,
code and hardware.
"""
WORDS = {Any: "any", str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}


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
    """A table of the schema's fields, without those that are `known` from another section."""
    lines = [f"## {title}", "", str(schema.__doc__).strip().replace("\n    ", "\n"), ""]
    lines += ["| field | type | unit | meaning |", "| :-- | :-- | :-- | :-- |"]
    for name, field in schema.model_fields.items():
        if name not in known:
            extra = field.json_schema_extra
            when = f" (since {extra['since']})" if extra["since"] else "" if field.is_required() else " (optional)"
            lines.append(f"| `{name}` | {words(field.annotation)} | {extra['unit']} | {field.description}{when} |")
    return "\n".join([*lines, ""])


def words(annotation: object) -> str:
    """A field's type in words."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if annotation in WORDS:
        return WORDS[annotation]
    if kind is Annotated:
        return words(parts[0])
    if kind is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if kind in (Union, UnionType):
        return " or ".join(map(words, parts))
    if kind is list:
        return f"list of {words(parts[0])}"
    if kind is dict:
        return f"object of {words(parts[1])}"
    return "object" if isinstance(annotation, type) else "any"


if __name__ == "__main__":
    main()
