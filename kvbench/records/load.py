"""Records of any number of shards and runs as one pandas frame."""

import json
import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kvbench.errors import UserError, no_folder
from kvbench.records.consistency import Copies, Finding, check, measures_more
from kvbench.records.manifest import read_manifests
from kvbench.records.progress import unfinished
from kvbench.records.provenance import provenance
from kvbench.records.record_files import read_file
from kvbench.records.served_bytes import with_16_bits
from kvbench.records.store import (
    PACK,
    PATTERN,
    RECORDS,
    SURROGATES,
    Edited,
    Read,
    key_in,
    parse,
)
from kvbench.utils.collector import collector_off
from kvbench.utils.console import warn
from kvbench.utils.files import below
from kvbench.utils.text import count

# Properties of samples that tables group by: one value each.
PROPERTIES = ("task", "group", "language", "bucket", "length", "depth", "seed")


def load(*folders: str | Path) -> pd.DataFrame:
    """All whole records below the folders (of runs, or of folders of runs), one row each, in the order of writing.

    The columns are the records' fields, then `folder`, `started`, `checkpoint_dtype` and PROVENANCE from the manifest
    of a record's run. Records of older versions get r_bytes_16 where other fields determine it.
    Raises UserError where a folder holds no records, or one record has two outcomes. Duplicates, several data sets with
    samples of the same names, several settings of one name, and all else that `gather` or `check` finds to be wrong,
    become warnings.
    """
    records, messages = _loaded(folders, {"duplicate", "data", "settings"})
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return records


def load_for_command(*folders: str | Path) -> pd.DataFrame:
    """`load` for a command: findings are lines on standard error, and none is about several settings of one name, which
    commands tell apart by their labels."""
    records, messages = _loaded(folders, {"duplicate", "data"})
    for message in messages:
        warn(message)
    return records


class Loaded(NamedTuple):
    records: pd.DataFrame
    messages: list[str]  # what is wrong with the records or their files, and what is noted of them


def _loaded(folders: Sequence[str | Path], noted: Set[str]) -> Loaded:
    """The records of folders, with the messages of faults and of findings of the `noted` kinds."""
    records, findings = gather(*folders)
    refuse(findings)
    told = [finding for finding in (*findings, *check(records)) if finding.wrong or finding.kind in noted]
    return Loaded(records, [finding.message for finding in told])


def gather_for_command(*folders: str | Path) -> pd.DataFrame:
    """The frame of `gather`; each fault of the files, and each folder that lacks records, is a line on standard error.

    Raises UserError where one record has two outcomes.
    """
    records, findings = gather(*folders)
    refuse(findings)
    for finding in findings:
        warn(finding.message)
    for folder in folders:
        if said := unfinished(Path(folder)):
            warn(f"{folder}: {said}")
    return records


def gather(*folders: str | Path) -> tuple[pd.DataFrame, list[Finding]]:
    """`load`'s frame, and findings about its files.

    torn: lines that hold no record. edited: records that do not fit their checksum. manifest: one that is damaged, or
    missing for some records. duplicate: further copies of a record with the same outcome. outcome: copies with another
    outcome. The frame has the first copy, or the first with a distance from FullKV.
    """
    with collector_off():  # records have no cycles, and its passes would double the time
        return gathered((path, read_file(path)) for path in files(folders))


def gathered(reads: Iterable[tuple[Path, Read]]) -> tuple[pd.DataFrame, list[Finding]]:
    """`gather` for files that were read."""
    kept: dict[str, tuple[dict[str, Any], Path]] = {}
    copies, torn = Copies(), {}
    with collector_off():
        for path, (records, damaged) in reads:
            if damaged:
                torn[path] = damaged
            for record in records:
                if (first := kept.get(record["key"])) is not None:
                    copies.add(*first, record, path)
                if first is None or measures_more(record, first[0]):
                    kept[record["key"]] = (record, path)
        beside, findings = manifests_beside(kept.values())
        frame = frame_of([record for record, _ in kept.values()])
    frame = with_16_bits(pd.concat([frame, beside[[name for name in beside if name not in frame]]], axis=1))
    return frame, [
        *(finding for path, lines in torn.items() for finding in _damaged(path, lines, kept.keys())),
        *findings,
        *copies.findings(),
    ]


def frame_of(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Lone surrogates, which no column of text can hold, become U+FFFD; lists and objects in PROPERTIES become text."""
    try:
        frame = pd.DataFrame(records)
    except UnicodeEncodeError:
        frame = pd.DataFrame([{name: _whole_text(value) for name, value in record.items()} for record in records])
    nested = [name for name in PROPERTIES if name in frame and frame[name].map(type).isin((list, dict)).any()]
    return frame.assign(**{name: frame[name].map(_plain) for name in nested})


def _plain(value: object) -> object:
    missing = value is None or value != value  # NaN
    return value if missing or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _whole_text(value: object) -> object:
    return SURROGATES.sub("\ufffd", value) if isinstance(value, str) else value


def refuse(findings: Sequence[Finding]) -> None:
    """Raise UserError where a record has two outcomes, since neither can be preferred."""
    if contradictions := [finding.message for finding in findings if finding.kind == "outcome"]:
        raise UserError("; ".join(contradictions))


def files(folders: Sequence[str | Path], linked: bool = True) -> list[Path]:
    """The files of records below the folders, each once, a folder's in order of name.

    linked: also those of folders that links lead to; not for what somebody else handed in.
    """
    if not folders:
        raise UserError("name a folder of records")
    paths: dict[Path, Path] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise no_folder(folder)
        search = below if linked else Path.rglob
        inside = sorted(path for name in (PATTERN, PACK) for path in search(Path(folder), name))
        if not inside:
            raise UserError(f"{folder} holds no {RECORDS}")
        for path in inside:
            paths.setdefault(path.resolve(), path)
    return list(paths.values())


def manifests_beside(records: Iterable[tuple[dict[str, Any], Path]]) -> tuple[pd.DataFrame, list[Finding]]:
    """The folder and provenance of each record, and findings about damaged and missing manifests."""
    places = [(path.parent, str(record.get("run"))) for record, path in records]
    findings: list[Finding] = []
    rows: list[dict[str, str | None]] = []
    number: dict[tuple[Path, str], int] = {}
    manifests: dict[Path, dict[str, dict[str, Any]]] = {}
    for (folder, run), records_of_run in Counter(places).items():
        if folder not in manifests:
            manifests[folder], damaged = read_manifests(folder)
            findings += [
                Finding("manifest", f"{path} is damaged: it is not a run's manifest ({why})")
                for path, why in damaged.items()
            ]
        if run not in manifests[folder]:
            what = f"{count(records_of_run, 'record')} in {folder}"
            findings.append(Finding("manifest", f"no manifest of run {run}: the origin of {what} is unknown"))
        number[folder, run] = len(rows)
        rows.append({"folder": str(folder), **provenance(manifests[folder].get(run, {}))})
    frame = pd.DataFrame(rows, columns=list({"folder": None} | provenance({})), dtype=object)
    return frame.iloc[[number[place] for place in places]].reset_index(drop=True), findings


def _damaged(path: Path, lines: Sequence[bytes], keys: Container[str]) -> Iterator[Finding]:
    """Findings about the lines of a file that hold no record; wrong unless the record of each was made again."""
    edited = [line for line in lines if _edited(line)]
    torn = [line for line in lines if line not in edited]
    for kind, damaged, what in (
        ("torn", torn, f"{count(len(torn), 'line')} of {path} torn or damaged"),
        ("edited", edited, f"{count(len(edited), 'record')} of {path} changed since written"),
    ):
        if damaged:
            lost = sum(key_in(line) not in keys for line in damaged)
            then = f"{count(lost, 'record')} missing until a run makes them again" if lost else "made again since"
            yield Finding(kind, f"{what}: {then}", wrong=lost > 0)


def _edited(line: bytes) -> bool:
    try:
        parse(line)
    except (ValueError, RecursionError) as error:
        return isinstance(error, Edited)
    return False
