"""`samples.jsonl` beside the records: what each sample asked, told once and not in every record."""

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path

from kvbench.benchmarks import Sample
from kvbench.utils.files import replacing

SAMPLES = "samples.jsonl"
END = 1000  # characters of a prompt's end that are kept


def write_samples(folder: Path, samples: Sequence[Sample]) -> None:
    """Add the samples that a run's folder does not tell of yet; several processes may do so at once."""
    with (folder / ".lock.samples").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        known = read_samples(folder)
        new = {sample.id: told(sample) for sample in samples if sample.id not in known}
        if new:
            # ASCII: a lone surrogate is text to JSON, but not to UTF-8
            lines = [json.dumps(row) + "\n" for row in (known | new).values()]
            with replacing(folder / SAMPLES) as work:
                work.write_text("".join(lines), encoding="ascii")


def told(sample: Sample) -> dict:
    """What a reader of results wants to see of a sample without its data: the prompt's end, and what is expected."""
    return {
        "sample": sample.id,
        "prompt_end": sample.prompt[-END:],
        "prompt_characters": len(sample.prompt),
        "question": sample.question[-END:],
        "prefix": sample.prefix,
        "answers": list(sample.answers),
        "meta": sample.meta,
    }


def read_samples(folder: Path) -> dict[str, dict]:
    """What `samples.jsonl` tells of each sample, by id; empty where there is no such file."""
    try:
        lines = (folder / SAMPLES).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return {row["sample"]: row for line in lines if (row := _row(line))}


def _row(line: str) -> dict | None:
    """None for a line that somebody damaged: it is written again where its sample is run again."""
    try:
        row = json.loads(line)
        return row if isinstance(row["sample"], str) else None
    except (ValueError, KeyError, TypeError):
        return None
