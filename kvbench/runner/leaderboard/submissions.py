"""Submissions: folders of records, each with its manifests and its makers."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kvbench.errors import UserError, check_fields
from kvbench.records.load import files
from kvbench.runner.verify.check_complete import NAME as COMPLETE
from kvbench.runner.verify.checks import checks_of
from kvbench.runner.verify.folder import Folder, read
from kvbench.runner.verify.page import verdict_of
from kvbench.runner.verify.verdict import Check, Verdict
from kvbench.utils.console import warn
from kvbench.utils.links import held
from kvbench.utils.text import count
from kvbench.utils.yaml_files import read_yaml

FILE = "submission.yaml"


@dataclass(frozen=True)
class Note:
    """The contents of submission.yaml: the makers of the runs beside it, or in folders below it."""

    by: str = ""
    notes: str = ""


@dataclass(frozen=True)
class Submission:
    """A pack or a run's folder with scores."""

    name: str  # of its folder, below the named folder
    folder: Path
    note: Note
    records: pd.DataFrame  # of methods and engines, as `kvbench.records.load` gives them
    manifests: dict[str, dict[str, Any]]  # by run
    verified: str = ""  # how many checks have which verdict


@dataclass(frozen=True)
class Apart:
    """A folder that is shown and never ranked: wrong, unfinished, damaged, or the records of another one again."""

    name: str
    folder: Path
    why: str


class HandedIn(NamedTuple):
    ranked: list[Submission]
    apart: list[Apart]


Judge = Callable[[Folder], Sequence[Check]]


def verified_here(folder: Folder) -> Sequence[Check]:
    """The checks of `kvbench verify` with the data of this machine."""
    return checks_of(folder, {})


def read_submissions(folders: Sequence[Path], judge: Judge | None = None) -> HandedIn:
    """The packs and runs in or below `folders`. One that is wrong or cannot be read keeps no other from the page.

    Raises UserError if there is none, and for a mistake in submission.yaml.
    """
    ranked, apart, unscored, seen = [], [], [], Seen()
    for folder in dict.fromkeys(path.parent for path in files(folders, linked=False)):
        name = name_of(folder, folders)
        try:
            contents = read(folder)
        except UserError as error:
            apart.append(Apart(name, folder, str(error)))
            continue
        if (records := with_scores(contents)) is None:
            unscored.append(folder)
            continue
        checks = (judge or verified_here)(contents)
        if (why := refused(checks) or seen.again(name, contents)) is not None:
            apart.append(Apart(name, folder, why))
            continue
        note = note_of(folder, folders)
        ranked.append(Submission(name, folder, note, records, contents.manifests, verdict_of(checks)))
    if not ranked and not apart:
        raise UserError(f"{', '.join(map(str, folders))}: no records with scores")
    for folder in unscored:
        warn(f"{folder} is left out: no records with scores")
    return HandedIn(ranked, apart)


def with_scores(folder: Folder) -> pd.DataFrame | None:
    """The records of methods and engines; None for a folder without scores: probes and speed."""
    records = folder.frame
    if "kind" not in records:
        return None
    records = records[records["kind"].isin(("method", "engine"))].reset_index(drop=True)
    return None if records.empty or not any(records["scores"]) else records


def refused(checks: Sequence[Check]) -> str | None:
    """Why a folder is not ranked: something is wrong, or not all that its runs requested is there."""
    for check in checks:
        if check.verdict is Verdict.WRONG:
            return f"wrong {check.name}: {check.notes[0]}"
    for check in checks:
        if check.name == COMPLETE and check.verdict is Verdict.UNPROVEN:
            return f"not complete: {check.notes[0]}"
    return None


class Seen:
    """Records of earlier folders, recognised by their answers with times in nanoseconds, which no two share."""

    def __init__(self) -> None:
        self.by: dict[tuple[object, ...], str] = {}

    def again(self, name: str, folder: Folder) -> str | None:
        """The earlier folder that has records of this one; None without any, and then this folder's are added."""
        marks = [mark for record in folder.records if (mark := _mark(record)) is not None]
        if earlier := Counter(self.by[mark] for mark in marks if mark in self.by):
            (other, times), *_ = earlier.most_common(1)
            return f"{count(times, 'record')} of {len(folder.records):,} are those of {other!r}, with the same times"
        self.by.update(dict.fromkeys(marks, name))
        return None


def _mark(record: Mapping[str, Any]) -> tuple[object, ...] | None:
    """None for a record whose times say nothing."""
    times = tuple(record.get(name) for name in ("prefill_seconds", "decode_seconds", "request_seconds"))
    return (record["sample"], record["prediction"], *times) if sum(map(bool, times)) > 0 else None


def note_of(folder: Path, top: Sequence[Path]) -> Note:
    """The nearest submission.yaml, from the folder of records up to the folder that the command names."""
    for place in _upwards(folder, {path.resolve() for path in top}):
        if (place / FILE).is_file():
            return read_note(held(place / FILE, place))
    return Note()


def read_note(path: Path) -> Note:
    """Raises UserError for another file than a mapping of Note's fields to texts."""
    node = read_yaml(path)
    if not isinstance(node, dict) or not all(isinstance(value, str) for value in node.values()):
        raise UserError(f"{path} must have the keys by and notes, each with a text")
    check_fields(str(path), node, Note)
    return Note(**{key: " ".join(value.split()) for key, value in node.items()})


def _upwards(folder: Path, top: set[Path]) -> Iterator[Path]:
    place = folder.resolve()
    yield place
    while place not in top and place != place.parent:
        place = place.parent
        yield place


def name_of(folder: Path, top: Sequence[Path]) -> str:
    """The path below the nearest folder that the command names; for such a folder itself, its own name."""
    *_, last = _upwards(folder, {path.resolve() for path in top})
    below = folder.resolve().relative_to(last)
    return below.as_posix() if below.parts else last.name
