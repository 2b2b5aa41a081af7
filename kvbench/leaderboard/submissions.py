"""What was handed in: folders of records, each with its manifests and who made it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.errors import UserError, check_fields
from kvbench.records.load import files, gather, refuse
from kvbench.records.manifest import read_manifests
from kvbench.utils.links import check_held, held
from kvbench.utils.yaml_files import read_yaml

FILE = "submission.yaml"


@dataclass(frozen=True)
class Note:
    """What submission.yaml says: who made the runs beside it, or in folders below it."""

    by: str = ""
    notes: str = ""


@dataclass(frozen=True)
class Submission:
    """A pack or a run's folder with scores."""

    name: str  # of its folder, below the one that was named
    folder: Path
    note: Note
    records: pd.DataFrame  # those of methods and engines, as `kvbench.records.load` gives them
    manifests: dict[str, dict[str, Any]]  # by run


def read_submissions(folders: Sequence[Path]) -> list[Submission]:
    """The packs and runs in or below `folders`.

    Raises UserError where there is none, and for one whose records are damaged, edited or without a manifest.
    """
    found = list(dict.fromkeys(path.parent for path in files(folders)))
    read = [one for folder in found if (one := _read(folder, folders)) is not None]
    if not read:
        raise UserError(f"{', '.join(map(str, folders))}: no records with scores")
    return read


def _read(folder: Path, top: Sequence[Path]) -> Submission | None:
    """None for a folder without scores: probes and speed."""
    check_held(folder)
    records, findings = gather(folder)
    refuse(findings)
    if wrong := [finding.message for finding in findings if finding.wrong]:
        raise UserError(f"{'; '.join(wrong)} (kvbench verify {folder} checks the whole folder)")
    records = records[records["kind"].isin(("method", "engine"))].reset_index(drop=True)
    if records.empty or not any(records["scores"]):
        return None
    return Submission(name_of(folder, top), folder, note_of(folder, top), records, read_manifests(folder)[0])


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
