"""A folder to verify: its records, manifests and samples as they were read."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kvbench.records.consistency import Finding
from kvbench.records.load import files, gather, read_file
from kvbench.records.manifest import read_manifests
from kvbench.records.pack import read_sample_hashes
from kvbench.records.samples import SAMPLES, read_samples
from kvbench.records.schema import SampleRow, check
from kvbench.records.store import PACK
from kvbench.utils.links import check_held


class Described(NamedTuple):
    record: dict[str, Any]
    manifest: dict[str, Any]  # of its run


@dataclass(frozen=True)
class Folder:
    """A run's folder, or a pack of one."""

    path: Path
    records: list[dict[str, Any]]  # whole records of all files, copies included
    frame: pd.DataFrame  # as `load` gives them
    findings: list[Finding]
    manifests: dict[str, dict[str, Any]]  # by run
    samples: dict[str, dict[str, Any]]  # rows of samples.jsonl by sample; of a pack their hashes
    damaged_samples: int  # lines of samples.jsonl that hold no row, or a sample again
    packed: bool

    @property
    def methods(self) -> list[dict[str, Any]]:
        """The records of kind `method`: those with predictions and bytes."""
        return [record for record in self.records if record["kind"] == "method"]

    def with_manifests(self) -> Iterator[Described]:
        """Each record that has one with its manifest."""
        for record in self.records:
            if manifest := self.manifests.get(record["run"]):
                yield Described(record, manifest)


def read(path: Path) -> Folder:
    """Raises UserError where the folder holds no records, or has a link to what lies outside of it."""
    check_held(path)
    frame, findings = gather(path)
    records = [record for file in files([path]) for record in read_file(file).records]
    packed = (path / PACK).is_file()
    samples, damaged = (read_sample_hashes(path), 0) if packed else (read_samples(path), _damaged(path / SAMPLES))
    return Folder(path, records, frame, findings, read_manifests(path)[0], samples, damaged, packed)


def _damaged(path: Path) -> int:
    seen: Counter[str | None] = Counter()
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            seen[check(json.loads(line), SampleRow)["sample"]] += 1
        except (ValueError, RecursionError):
            seen[None] += 1
    return int(seen.pop(None, 0)) + sum(times - 1 for times in seen.values())


def named(record: Mapping[str, Any]) -> str:
    """A record in a problem's line."""
    return f"sample {record['sample']!r} under {record['setting']!r}"
