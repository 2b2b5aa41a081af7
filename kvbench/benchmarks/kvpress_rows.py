"""Rows of kvpress's data sets: a context, a question about it, and the beginning of the answer."""

from typing import Any

from kvbench.benchmarks.base import Sample, text_unit
from kvbench.utils.jsonl import FieldType

FIELDS: dict[str, FieldType | tuple[FieldType, ...]] = {
    "context": str,
    "question": str,
    "answer_prefix": str,
    "task": str,
    "max_new_tokens": int,
}
# Files with the rows of a configuration: of the data set on the hub, of its cache, of save_to_disk, as text.
LAYOUTS = ("{name}/test-*.parquet", "{name}/*test*.parquet", "{name}/data-*.arrow", "{name}.jsonl")


def layouts(name: str) -> list[str]:
    """Patterns for the files of a configuration of a data set."""
    return [layout.format(name=name) for layout in LAYOUTS]


def sample_of(row: dict[str, Any], name: str, answers: list[str], unit: str = "", **meta: Any) -> Sample:
    """A row as kvpress's pipeline reads it: context and question in one turn of the chat, tokenised separately.

    Without a `unit`, that of its context.
    """
    return Sample(
        id=name,
        prompt=row["context"] + row["question"],
        answers=tuple(answers),
        max_new_tokens=row["max_new_tokens"],
        question=row["question"],
        question_apart=True,
        prefix=row["answer_prefix"],
        unit=unit or text_unit(row["context"]),
        meta={"task": row["task"], **meta, "origin": "kvpress"},
    )
