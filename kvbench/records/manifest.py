"""The manifest of a run: the origin of its records, written as the run starts and again when it ends."""

import json
import math
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, on_disk
from kvbench.records.schema import JobNote, check, check_manifest
from kvbench.utils.files import replacing, visible
from kvbench.utils.regular_files import read_bytes
from kvbench.utils.text import in_one_line

LAST = 2**63 - 1  # the largest `number` that is read again
LARGEST = 2**20  # bytes of a manifest: real ones have some ten thousand


def parse(data: bytes) -> object:
    """JSON in which NaN, infinities and integers of more than 64 bits, which no version writes, become text."""
    return json.loads(data, parse_constant=str, parse_float=_number, parse_int=_integer)


def _number(digits: str) -> float | str:
    return value if math.isfinite(value := float(digits)) else digits


def _integer(digits: str) -> int | str:
    return value if len(digits) <= 20 and -(2**63) <= (value := int(digits)) < 2**63 else digits


def read_manifests(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[Path, str]]:
    """The manifests of a folder of records by run id, the earliest first; and the files that hold none, with reasons.

    A file of more than LARGEST bytes holds none. `number` gives the order, since clocks of machines differ; `started`
    does for manifests of versions before 0.2, which lack it.
    """
    manifests: list[dict[str, Any]] = []
    damaged: dict[Path, str] = {}
    for path in visible(folder / "manifests", "*.json"):
        try:
            manifests.append(check_manifest(parse(read_bytes(path, LARGEST))))
        except (OSError, ValueError, RecursionError) as error:
            damaged[path] = in_one_line(error)
    manifests.sort(key=lambda manifest: (manifest.get("number", 0), manifest.get("started", ""), manifest["run"]))
    return {manifest["run"]: manifest for manifest in manifests}, damaged


def next_number(folder: Path) -> int:
    """The `number` of a run that starts in a folder: the next one, and the largest again behind that."""
    manifests = read_manifests(folder)[0].values()
    return min(1 + max([len(manifests), *(int(manifest.get("number", 0)) for manifest in manifests)]), LAST)


def read_note(path: Path) -> dict[str, Any]:
    """The note of a job that ended before its run had a folder. Raises OSError, ValueError or RecursionError."""
    return check(parse(read_bytes(path)), JobNote)


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest instead of the run's earlier one. Raises UserError where the disk refuses it."""
    with on_disk(f"write {path}"):
        path.parent.mkdir(exist_ok=True)  # but not a run's folder that was removed
        with replacing(path) as work:
            work.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def end_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """`write_manifest` for a run that has ended, without hiding the error that ended it."""
    try:
        write_manifest(path, manifest)
    except UserError:
        if manifest["status"] == "finished":
            raise
