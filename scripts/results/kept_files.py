"""What a script keeps of a run."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from kvbench.errors import on_disk


def keep(folder: Path, target: Path, files: Iterable[str], manifest: str = "manifest.json") -> None:
    """Copy files of a run's folder, and its newest manifest under this name, to `target`, which is made."""
    newest = max((folder / "manifests").iterdir(), key=lambda path: path.stat().st_mtime)
    with on_disk(f"write to {target}"):
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(folder / file, target / file)
        shutil.copy(newest, target / manifest)
