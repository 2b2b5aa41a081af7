"""`samples.jsonl` beside the records: each sample's question, stored once rather than in every record."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.errors import on_disk
from kvbench.records.evidence import passages
from kvbench.records.schema import SampleRow, check
from kvbench.utils.console import warn
from kvbench.utils.files import replacing
from kvbench.utils.locks import open_lock, wait_for
from kvbench.utils.regular_files import read_bytes

SAMPLES = "samples.jsonl"
END = 1000  # characters of a prompt's end


def write_samples(folder: Path, samples: Sequence[Sample]) -> None:
    """Add the samples that the file of a run's folder lacks; several processes may do so at once."""
    if read_samples(folder).keys() >= {sample.id for sample in samples}:
        return
    with open_lock(folder / ".lock.samples") as lock:
        wait_for(lock, warn)
        known = read_samples(folder)
        new = {sample.id: row_of(sample) for sample in samples if sample.id not in known}
        if new:
            # ASCII: a lone surrogate is text to JSON, but not to UTF-8
            lines = [json.dumps(row) + "\n" for row in (known | new).values()]
            with replacing(folder / SAMPLES) as work:
                work.write_text("".join(lines), encoding="ascii")


def row_of(sample: Sample) -> dict[str, Any]:
    """The row of a sample: the end of its prompt, question, expected answers and their passages, and properties."""
    context = sample.prompt.removesuffix(sample.question)
    return {
        "sample": sample.id,
        "prompt_end": sample.prompt[-END:],
        "prompt_characters": len(sample.prompt),
        "question": (sample.turns[-1].question if sample.turns else sample.question)[-END:],
        "prefix": sample.prefix,
        "answers": list(sample.answers),
        "evidence": passages(context, sample.answers),
        "meta": sample.meta,
    }


def read_samples(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of `samples.jsonl` by sample id; empty if there is no such file."""
    path = folder / SAMPLES
    if not path.exists():
        return {}
    with on_disk(f"read {path}"):
        lines = read_bytes(path).splitlines()
    return {row["sample"]: row for line in lines if (row := _row(line))}


def _row(line: bytes) -> dict[str, Any] | None:
    """None for a damaged line: it is written again when its sample is run again."""
    try:
        return check(json.loads(line), SampleRow)
    except (ValueError, RecursionError):
        return None
