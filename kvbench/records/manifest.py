"""The manifest of a run: exactly what produced its records."""

import json
from pathlib import Path

from kvbench.errors import UserError, on_disk
from kvbench.utils.files import replacing


def write_manifest(path: Path, manifest: dict) -> None:
    """Write a manifest, in the place of an earlier one. Raises UserError where the disk does not take it."""
    with on_disk(f"write {path}"):
        path.parent.mkdir(exist_ok=True)  # a run's folder that was removed does not come back for this
        with replacing(path) as work:
            work.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def end_manifest(path: Path, manifest: dict) -> None:
    """`write_manifest` once a run has ended, which does not hide the error that ended it."""
    try:
        write_manifest(path, manifest)
    except UserError:
        if manifest["status"] == "finished":
            raise
