"""LongBench's rows: from a folder of JSON-lines files, or from the official archive on the hub."""

import shutil
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from kvbench.benchmarks.longbench.tasks import TASKS
from kvbench.errors import UserError
from kvbench.metrics.longbench import check_answers, needs_classes
from kvbench.utils.deadline import within
from kvbench.utils.files import appearing, cache_root
from kvbench.utils.hashing import file_hash
from kvbench.utils.jsonl import FieldType, read_rows
from kvbench.utils.links import held
from kvbench.utils.revisions import checked_revision

# SHA-256 of data.zip in the data set's repository, by revision.
SHA256 = {
    "5e628be450b7e67fb7ae6e201bd6d8f7056f7672": "cb45b11a4133c6bc1d6a44b0f8e701335ff1e543195db1103472e575857f7f64",
}
DEADLINE = 1800  # seconds for the archive, of about 100 MB
FIELDS: dict[str, FieldType | tuple[FieldType, ...]] = {
    "input": str,
    "context": str,
    "answers": list[str],
    "length": (int, None),
    "all_classes": (list[str], None),
    "_id": (str, int, None),
}


def read(folder: Path, tasks: Sequence[str], extended: bool = False) -> dict[str, list[dict[str, Any]]]:
    """The rows of every task's file TASK.jsonl (TASK_e.jsonl when `extended`), all of them checked.

    Raises UserError that names the file and the row, or the tasks that the folder does have.
    """
    if not folder.is_dir():
        raise UserError(f"benchmark.data_dir={str(folder)!r} is not a folder")
    ending = "_e.jsonl" if extended else ".jsonl"
    available = [task for task in TASKS if (folder / (task + ending)).is_file()]
    if missing := [task for task in tasks if task not in available]:
        raise UserError(
            f"{folder} has no file TASK{ending} of {', '.join(missing)}; "
            f"LongBench tasks found there: {', '.join(available) or 'none'}"
        )
    return {task: _rows(held(folder / (task + ending), folder), task, extended) for task in tasks}


def _rows(path: Path, task: str, extended: bool) -> list[dict[str, Any]]:
    """The rows of a task. LongBench-E needs all lengths for its ranges, and a classification needs its classes."""
    fields = FIELDS | ({"length": int} if extended else {})
    fields |= {"all_classes": list[str]} if needs_classes(task) else {}
    return read_rows(
        path, fields, filled=("context", "answers"), unique="_id", check=lambda row: check_answers(task, row["answers"])
    )


def from_hub(repository: str, revision: str) -> Path:
    """The folder with the files of the official data.zip: fetched, unzipped and hashed once, then read offline."""
    target = cache_root() / "longbench" / f"{repository}@{revision}".replace("/", "--")
    if not target.is_dir():
        archive = _download(repository, revision)
        sha256 = file_hash(archive)
        if sha256 != SHA256.get(revision, sha256):
            raise UserError(
                f"{archive} of {repository} has SHA-256 {sha256}, not {SHA256[revision]}: delete it to fetch it again"
            )
        with appearing(target) as work:
            _unzip(archive, work)
            (work / "data.zip.sha256").write_text(f"{sha256}  data.zip\n")
    return target


def _download(repository: str, revision: str) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP library that the hub uses

    revision = checked_revision(revision)
    where = {"repo_id": repository, "filename": "data.zip", "repo_type": "dataset", "revision": revision}
    try:
        cached = try_to_load_from_cache(**where)
        if isinstance(cached, str):
            return Path(cached)
        # one attempt: the download has its own retries
        within(20, partial(get_hf_file_metadata, hf_hub_url(**where), timeout=10))
        return Path(within(DEADLINE, partial(hf_hub_download, **where)))
    except (OSError, HTTPError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"LongBench's data.zip could not be fetched from the data set {repository} at {revision}: {reason} "
            "(without a network, unzip a copy and set benchmark.data_dir=FOLDER, "
            "the folder with narrativeqa.jsonl and the others)"
        ) from error


def _unzip(archive: Path, folder: Path) -> None:
    """Unzip the archive's JSON-lines files into `folder`, ignoring the archive's own folders."""
    try:
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                path = PurePosixPath(member.filename)
                if path.suffix == ".jsonl" and not path.name.startswith("."):
                    with file.open(member) as source, (folder / path.name).open("wb") as copy:
                        shutil.copyfileobj(source, copy)
    except zipfile.BadZipFile as error:
        raise UserError(f"{archive} is not a complete zip file ({error}): delete it to fetch it again") from error
