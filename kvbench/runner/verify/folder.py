"""A folder to verify: its records, manifests and samples as they were read."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kvbench.records.consistency import Finding
from kvbench.records.load import gathered
from kvbench.records.manifest import read_manifests
from kvbench.records.pack import read_sample_hashes
from kvbench.records.record_files import files_in, read_file
from kvbench.records.samples import SAMPLES, read_samples
from kvbench.records.schema import SampleRow, check
from kvbench.records.store import PACK
from kvbench.runner.verify.limits import check_sizes
from kvbench.utils.links import check_held
from kvbench.utils.regular_files import open_regular


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
    damaged_samples: int  # lines of samples.jsonl without a row, or with a sample's second one
    packed: bool

    @property
    def methods(self) -> list[dict[str, Any]]:
        """The records of kind `method`: the records with predictions and bytes."""
        return [record for record in self.records if record["kind"] == "method"]

    def with_manifests(self) -> Iterator[Described]:
        """Each record whose run has a manifest, with that manifest."""
        for record in self.records:
            if manifest := self.manifests.get(record["run"]):
                yield Described(record, manifest)


def read(path: Path) -> Folder:
    """Raises UserError for a folder without records, with damaged or oversized files, or with a link out of it."""
    check_held(path)
    check_sizes(path)
    reads = [(file, read_file(file)) for file in files_in(path)]
    frame, findings = gathered(reads)
    records = [record for _, read in reads for record in read.records]
    packed = (path / PACK).is_file()
    samples, damaged = (read_sample_hashes(path), 0) if packed else (read_samples(path), _damaged(path / SAMPLES))
    return Folder(path, records, frame, findings, read_manifests(path)[0], samples, damaged, packed)


def _damaged(path: Path) -> int:
    rows: Counter[str | None] = Counter()  # by sample; None: no row
    if not path.exists():
        return 0
    with open_regular(path) as file:
        for line in file:
            try:
                rows[check(json.loads(line), SampleRow)["sample"]] += 1
            except (ValueError, RecursionError):
                rows[None] += 1
    return rows.pop(None, 0) + sum(copies - 1 for copies in rows.values())


def named(record: Mapping[str, Any]) -> str:
    """The name of a record in a problem's line."""
    return f"sample {record['sample']!r} under {record['setting']!r}"
